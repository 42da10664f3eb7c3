#!/usr/bin/env bash
# Every check that a change has to pass, but for the slow tests: scripts/test.sh [options of pytest]
#
# Installs into .venv, with the tools, where that is not done yet. What it needs is described in setup.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

set_up dev
cd "$root"

step "ruff check" ruff check
step "ruff format" ruff format --check
step "mypy" mypy
step "lint-imports" lint-imports
# A file at a time for each core: tests of a file share what they set up. The integration tests, which take
# longest, come first, so that no core is left with one of them at the end.
python -m pytest -n logical --dist loadfile --no-loadscope-reorder "$@"
