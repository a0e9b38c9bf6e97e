#!/bin/bash
# install_test.sh WORK_DIR: `pip install .` into a new environment, then the tests from the installed package. Compiles
# the library, so it is not part of .ci/run. CMAKE_BUILD_PARALLEL_LEVEL bounds the compilers, 2 by
# default.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$1
rm -rf "$work/venv"
mkdir -p "$work"
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-2}
unset PYTHONPATH

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install "$source"
"$work/venv/bin/pip" install -r "$source/python/requirements.txt"
cd "$work"
PYTHONDONTWRITEBYTECODE=1 "$work/venv/bin/python" -m pytest -q -p no:cacheprovider "$source/tests/python"
