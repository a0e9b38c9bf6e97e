#!/bin/bash
# install_test.sh WORK_DIR: `pip install .` into a new environment, then the tests from the installed package. Compiles
# the library, so it is not part of .ci/run. CMAKE_BUILD_PARALLEL_LEVEL bounds the compilers, 2 by
# default.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(realpath -m "$1")
rm -rf "$work/venv"
mkdir -p "$work"
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-2}
unset PYTHONPATH

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install "$source"
"$work/venv/bin/pip" install -r "$source/python/requirements.txt"
cd "$work"
found=$("$work/venv/bin/python" -c 'import rullama; print(rullama.__file__)')
if [[ $found != "$work/venv"/* ]]; then
  echo "the tests would run with $found, expected the installed package in $work/venv" >&2
  exit 1
fi
libraries=$(find "$work/venv" -name 'librullama.so*' | wc -l)
if ((libraries != 1)); then
  echo "the package has librullama $libraries times, expected once" >&2
  exit 1
fi
# The command is the program of the package, which finds the plugins of the package.
"$work/venv/bin/rullama" --version
backends=$("$work/venv/bin/rullama" backends)
if [[ $backends != *"$work/venv/"* ]]; then
  printf 'the command does not find the plugins of the package:\n%s\n' "$backends" >&2
  exit 1
fi
# All of them, those of forks and of the end of the interpreter too (test_threads.py): the library of a wheel is
# another build than that of the build tree.
PYTHONDONTWRITEBYTECODE=1 "$work/venv/bin/python" -m pytest -q -p no:cacheprovider "$source/tests/python"
