#!/usr/bin/env bash
# Runs all checks for a change, except the slow tests: scripts/test.sh [options of pytest]
#
# Installs nmt and the development tools into .venv if necessary. setup.sh describes the requirements.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

set_up dev
cd "$root"

step "ruff check" ruff check
step "ruff format" ruff format --check
step "mypy" mypy
step "lint-imports" lint-imports
unset PYTHONDONTWRITEBYTECODE # containers set it; each process would compile all tests and all of nmt again
# One file at a time per core, because the tests of a file share their fixtures. The integration tests take
# longest and run first, so that none of them runs alone at the end.
python -m pytest -n logical --dist loadfile --no-loadscope-reorder "$@"
