#!/usr/bin/env bash
# Builds the documentation as a site: scripts/docs.sh [options of mkdocs build]
#
# Installs mkdocs into .venv-docs, where that is not done yet. It needs neither nmt nor torch: the API reference is
# read from the sources. To look at it, with its search: python3 -m http.server --directory site
# What it needs is described in setup.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
venv="$root/.venv-docs"
cd "$root"

# The extra `docs` of pyproject.toml, in the versions of docs/constraints.txt.
wanted="$(cat pyproject.toml docs/constraints.txt | cksum) $root"
if [[ "$(cat "$venv/docs.stamp" 2>/dev/null || true)" != "$wanted" ]]; then
  make_environment
  rm -f "$venv/docs.stamp"
  mapfile -t packages < <("$venv/bin/python" -c '
import tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["project"]["optional-dependencies"]["docs"], sep="\n")')
  step "Installing mkdocs" "$venv/bin/python" -m pip --disable-pip-version-check --no-input install \
    -c docs/constraints.txt "${packages[@]}"
  printf '%s' "$wanted" >"$venv/docs.stamp"
fi

# NO_MKDOCS_2_WARNING: a notice of the theme about a later version of mkdocs.
step "Building site/" env NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --clean "$@"

# A page must not fetch anything from another server.
if grep -rEo --include='*.html' '<(script|link|img|iframe|source)[^>]*(src|href)="?(https?:)?//[^" >]*' site; then
  echo "site/: the pages above fetch something from another server" >&2
  exit 1
fi
