#!/bin/bash
# Does conformance see what it is there to see? Puts one fault after another (tools/mutants.txt) into a copy of the
# CPU backend, builds it and runs rullama-conformance on it: each has to be caught.
#
#   tools/check-mutants.sh BUILD_DIR [FIRST [LAST]]
#
# BUILD_DIR holds a finished build of this tree (its rullama-conformance is used). Faults are numbered from 1. Takes about
# half a minute for each. Exit code 1 if one survives.
set -euo pipefail

source=$(cd "$(dirname "$0")/.." && pwd)
if [[ $# -lt 1 || ! -x $1/bin/rullama-conformance ]]; then
  echo "usage: tools/check-mutants.sh BUILD_DIR [FIRST [LAST]]; BUILD_DIR has bin/rullama-conformance" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
first=${2:-1}
last=${3:-1000}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for item in CMakeLists.txt cmake core backends models samplers cli bench; do
  cp -r "$source/$item" "$work/"
done
# A fault is the same without much optimisation, and compiled in a third of the time.
cmake -S "$work" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 \
  -DRULLAMA_TESTS=OFF >/dev/null
plugin=$work/build/lib/rullama/librullama_backend_cpu.so

conformance() {
  cmake --build "$work/build" --target rullama_backend_cpu >"$work/build.log" 2>&1 ||
    { cat "$work/build.log"; echo "the fault does not compile" >&2; exit 1; }
  timeout 600 "$build/bin/rullama-conformance" --plugin "$plugin" \
    --manifest "$source/backends/cpu/conformance.json" >"$work/log" 2>&1
}

echo "without a fault"
conformance || { tail -40 "$work/log"; echo "fails without a fault" >&2; exit 1; }

number=0
survivors=0
while IFS=$'\t' read -r file from to; do
  [[ -z $file || $file == \#* ]] && continue
  number=$((number + 1))
  if ((number < first || number > last)); then continue; fi
  path=$work/backends/cpu/$file
  FROM=$from TO=$to perl -0pi -e 's/\Q$ENV{FROM}\E/$ENV{TO}/ or die "not found: $ENV{FROM}\n"' "$path"
  if conformance; then
    echo "$number: SURVIVED $file: $from -> $to"
    survivors=$((survivors + 1))
  else
    echo "$number: caught by $(grep -c '^\[  FAILED  \]' "$work/log" || true) tests: $file: $from"
  fi
  cp "$source/backends/cpu/$file" "$path"
done <"$source/tools/mutants.txt"
echo "$survivors survived"
((survivors == 0))
