#!/usr/bin/env bash
# Everything worth knowing about nmt on a GPU, within 25 minutes of one: scripts/gpu_day.sh OUT
#
#   tests        the tests marked gpu
#   training     target tokens per second against torch.nn.Transformer and Hugging Face's Marian model; with
#                half_residual, unmeasured_kernels and cuda_graphs; at 25,000 and 3,125 tokens
#   decoding     sentences per second of a model trained for a minute, in fp32 and bf16, against transformers
#   profile      kernels of ten updates of the base model
#   ledger       what was counted without a GPU (scripts/gpu_ledger.py), beside what was measured
#
# OUT receives JSON and text, and a summary.md. A step that fails or takes too long does not stop the others.
#
# It installs nothing. It uses the Python in PYTHON (default: python3) and its torch, 2.11 or newer. Packages that
# this Python lacks can be in a folder of wheels, which are unpacked under OUT: WHEELS=DIR scripts/gpu_day.sh OUT
#   scripts/gpu_day.sh wheels DIR [3.12]     downloads these wheels on a machine with internet
# STEPS="environment tests" runs these steps alone, for a machine that is available for minutes at a time. The
# steps of several calls add up in the same OUT.
# QUICK=1 makes all steps tiny, to try the script itself; it then also runs without a GPU.
set -uo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${PYTHON:-python3}"

if [[ "${1:-}" == wheels ]]; then
  # Without torch and what it brings along, which the machine with the GPU has; with the peer of the benchmark.
  grep -vE '^(#|torch==|triton==|nvidia|ruff|mypy|pre-commit)' "$root/constraints.txt" >"${TMPDIR:-/tmp}/wheels.txt"
  echo "transformers>=4.45" >>"${TMPDIR:-/tmp}/wheels.txt"
  exec "$python" -m pip download --no-deps --only-binary=:all: --python-version "${3:-3.12}" \
    --dest "$2" -r "${TMPDIR:-/tmp}/wheels.txt"
fi

out="$(mkdir -p "${1:?usage: scripts/gpu_day.sh OUT}" && cd "$1" && pwd)"
if [[ -n "${WHEELS:-}" ]]; then
  for wheel in "$WHEELS"/*.whl; do
    "$python" -m zipfile -e "$wheel" "$out/packages"
  done
fi
export PYTHONPATH="$root${WHEELS:+:$out/packages}${PYTHONPATH:+:$PYTHONPATH}"
export NMT_CACHE="$out/cache" PYTHONUNBUFFERED=1
cd "$root"

# run NAME SECONDS COMMAND...: runs a step; its output goes to OUT/NAME.txt, its status to OUT/steps.tsv.
run() {
  local name="$1" limit="$2" began=$SECONDS status
  shift 2
  if [[ -n "${STEPS:-}" && " $STEPS " != *" $name "* ]]; then
    return
  fi
  printf '%-28s ' "$name"
  timeout --kill-after=20 "$limit" "$@" >"$out/$name.txt" 2>&1
  status=$?
  printf '%4d s%s\n' $((SECONDS - began)) "$([[ $status -eq 0 ]] || echo "   FAILED, status $status")"
  printf '%s\t%d\t%d\n' "$name" "$status" $((SECONDS - began)) >>"$out/steps.tsv"
}

# trained RUN OVERRIDES...: a training on the quickstart's corpus.
trained() {
  local run="$1"
  shift
  run "$(basename "$run")" 240 "$python" -m nmt train run_dir="$run" "$@"
}

if [[ -n "${QUICK:-}" ]]; then
  model=tiny rounds=1 seconds=1 tokens=300 few=200 updates=4 precision=fp32 lines=8 formats=fp32
else
  model=base rounds=2 seconds=10 tokens=25000 few=3125 updates=300 precision=bf16 lines=500 formats="fp32 bf16"
fi
benchmark=("$python" scripts/benchmark_training.py --models "$model" --precisions "$precision"
  --rounds "$rounds" --seconds "$seconds" --pairs $((4 * tokens)))

[[ -n "${STEPS:-}" ]] || rm -f "$out/steps.tsv"
run environment 60 "$python" -c "
import importlib.util, json, platform, torch
gpu = torch.cuda.is_available()
print(json.dumps({
    'gpu': torch.cuda.get_device_name() if gpu else None, 'torch': torch.__version__, 'cuda': torch.version.cuda,
    'python': platform.python_version(), 'triton': importlib.util.find_spec('triton') is not None,
}))"
tail -n 1 "$out/environment.txt" 2>/dev/null
# Only their files: others import packages that a machine with a GPU may lack.
mapfile -t files < <(grep -rl "mark.gpu" tests)
[[ -z "${QUICK:-}" ]] || files=(tests/unit/model/test_flash_attention.py)
parallel="$("$python" -c "import importlib.util as i; print('-n 4' if i.find_spec('xdist') else '')")"
# shellcheck disable=SC2086
run tests 300 "$python" -m pytest -q -m gpu -p no:cacheprovider $parallel "${files[@]}"
peers="$("$python" -c "import importlib.util as i; print('transformers' if i.find_spec('transformers') else '')")"
run training 420 "${benchmark[@]}" --max-tokens "$tokens" --systems nmt torch $peers --json "$out/training.json"
run training-variants 300 "${benchmark[@]}" --max-tokens "$tokens" --rounds 1 \
  --systems nmt nmt+half nmt+kernels nmt+graphs --json "$out/training-variants.json"
run training-small-batches 180 "${benchmark[@]}" --max-tokens "$few" --rounds 1 --systems nmt nmt+half nmt+kernels nmt+graphs \
  --json "$out/training-small-batches.json"
trained "$out/quickstart" training.max_updates="$updates" training.averaging.kind=last \
  ${QUICK:+model=tiny training.validate_sentences=4}
for side in en de; do
  gunzip -c "data/quickstart/test.$side.gz" >"$out/test.$side"
done
# shellcheck disable=SC2086
run decoding 300 "$python" scripts/benchmark_decoding.py "$out" --models quickstart --text "$out/test.en" "$out/test.de" \
  --sentences "$lines" --rounds "$rounds" --precisions $formats --systems nmt $peers --json "$out/decoding.json"
trained "$out/profile" model="$model" training.precision="$precision" training.profile=true \
  training.max_updates=40 training.validate_every=40 training.validate_sentences=8 \
  training.averaging.kind=last
run ledger 120 "$python" scripts/gpu_ledger.py --json "$out/ledger.json" ${QUICK:+model=tiny --tokens 500}
run summary 60 "$python" scripts/gpu_day_summary.py "$out"
cat "$out/summary.md" 2>/dev/null
