# Shared functions of the other scripts: find Python and install nmt into .venv, once. Sourced, not run.
#
# PYTHON=python3.12 in the environment selects the Python for .venv; default: the first suitable one.
# Without a GPU, PyTorch's CPU build saves a download of gigabytes. It is on a separate index:
#   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu scripts/quickstart.sh

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"

# set_up [EXTRA]: creates the environment and installs nmt and the extra, unless they are installed already.
set_up() {
  local extra="${1:-}" wanted installed
  # The stamp includes the path: an environment that was moved or copied must be set up again.
  wanted="$(cat "$root/pyproject.toml" "$root/constraints.txt" | cksum) $root"
  installed="$(cat "$venv/nmt.stamp" 2>/dev/null || true)"
  if [[ "$installed" != "$wanted ${extra:-dev}" && "$installed" != "$wanted $extra" ]]; then
    install "$extra"
    printf '%s' "$wanted $extra" >"$venv/nmt.stamp"
  fi
  export PATH="$venv/bin:$PATH"
}

# step WORDS COMMAND...: runs a command without its output and prints WORDS and the seconds it took.
step() {
  local words="$1" log started=$SECONDS
  shift
  mkdir -p "$venv/logs"
  log="$venv/logs/$(printf '%s' "$words" | tr -cs '[:alnum:]' '-').log"
  printf '%-48s ' "$words" >&2
  if "$@" >"$log" 2>&1 </dev/null; then
    printf '%4d s\n' $((SECONDS - started)) >&2
  else
    printf 'FAILED after %d s\n\n' $((SECONDS - started)) >&2
    tail -n 40 "$log" >&2
    printf '\nThe whole log: %s\n' "$log" >&2
    exit 1
  fi
}

install() {
  local extra="$1" torch pip
  pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input install -c "$root/constraints.txt")
  make_environment
  rm -f "$venv/nmt.stamp"
  # PyTorch first and alone, so that pip takes a build that is installed or available, not the largest one.
  torch="$(grep '^torch==' "$root/constraints.txt")"
  step "Installing PyTorch ${torch#torch==}" "${pip[@]}" "$torch"
  step "Installing nmt${extra:+ with the tools of $extra}" "${pip[@]}" -e "$root${extra:+[$extra]}"
}

# Creates the environment $venv, unless it is there already.
make_environment() {
  local python
  if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python="$(find_python)"
    step "Creating ${venv##*/} with $("$python" --version)" "$python" -m venv "$venv"
  fi
}

find_python() {
  local candidate unfit=""
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$candidate"
      return
    fi
    unfit="$candidate"
  done
  if [[ -n "$unfit" ]]; then
    echo "$unfit: has no modules venv and ensurepip. On Debian and Ubuntu: apt install python3-venv" >&2
  else
    echo "${PYTHON:+PYTHON=$PYTHON: }nmt needs Python 3.11 or newer. Run PYTHON=/path/to/python3.12 $0" >&2
  fi
  return 1
}
