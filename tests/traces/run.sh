#!/bin/bash
# run.sh SOURCE_DIR PROGRAM: opens traces that PROGRAM writes with Perfetto's trace processor.
set -euo pipefail
source=$1
venv=$source/.venv
export RULLAMA_PROGRAM=$2 PYTHONPYCACHEPREFIX=$venv/pycache
if ! cmp -s "$source/python/requirements.txt" "$venv/installed-python-requirements.txt"; then
  echo "$venv does not have the packages of python/requirements.txt; run tools/install-deps.sh --tests" >&2
  exit 1
fi
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider "$source/tests/traces"
