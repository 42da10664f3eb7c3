#!/usr/bin/env bash
# Trains the rows of table 3 of "Attention Is All You Need" at a smaller size: scripts/table3.sh [FOLDER] [OPTION ...]
#
#   scripts/table3.sh                             the quickstart's corpus into runs/table3, three seeds
#   scripts/table3.sh runs/one --seeds 1          one seed
#   scripts/table3.sh runs/mine data=local data.source_lang=en data.target_lang=de data.train.source=a.en ...
#
# Options: --seeds N, --jobs N, --rows base,A; --layers N, --d-model D and --d-ff F of the base; --report DOCS; and those
# of nmt-train. Installs into .venv, trains, and prints the table beside the paper's. The same command resumes it.
# docs/table3.md has a table. setup.sh describes the requirements.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

folder=runs/table3
if [[ $# -gt 0 && "$1" != -* && "$1" != *=* ]]; then
  folder="$1"
  shift
fi
set_up
exec python "$root/scripts/table3.py" "$folder" "$@"
