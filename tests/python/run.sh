#!/bin/bash
# run.sh pytest|search|types SOURCE_DIR BUILD_DIR: tests the Python package of a build tree with the Python of .venv.
set -euo pipefail
part=$1 source=$2 build=$3
python=$source/.venv/bin/python

if [[ ! -x $python ]]; then
  echo "there is no $python; run tools/install-deps.sh --tests, then configure and build again" >&2
  exit 1
fi
if ! compgen -G "$build/python/rullama/_rullama*.so" >/dev/null; then
  echo "there is no native module in $build/python/rullama; configure with -DRULLAMA_PYTHON=ON and build" >&2
  exit 1
fi
# Byte code is kept out of the sources.
export PYTHONPATH=$build/python PYTHONPYCACHEPREFIX=$source/.venv/pycache
case $part in
  pytest) "$python" -m pytest -q -p no:cacheprovider -m "not search" "$source/tests/python" ;;
  search) OPENBLAS_NUM_THREADS=1 "$python" -m pytest -q -p no:cacheprovider -m search "$source/tests/python/test_examples.py" ;;
  types)
    cd "$source"
    "$python" -m mypy --strict --cache-dir "$build/python/mypy" "$build/python/rullama" examples/python
    ;;
  *) echo "unknown part $part" >&2; exit 2 ;;
esac
