#!/bin/bash
# Checks that conformance detects faults. Puts one fault after another (tools/mutants.txt) into a copy of the CPU
# backend, builds it and runs rullama-conformance on it, which has to fail each time. First with the cases that CI runs
# (--quick), which have to find 30 of 34 of all faults, then with all cases.
#
#   tools/check-mutants.sh BUILD_DIR [FIRST [LAST]]
#   tools/check-mutants.sh --apply
#
# BUILD_DIR holds a finished build of this tree (its rullama-conformance is used). Faults are numbered from 1. Takes about
# half a minute for each. With --apply nothing is built: each fault is only applied to the source, and the copy of the
# tree is configured. Exit code 1 if a fault survives, does not compile or does not apply, or if CI finds too few; all
# faults are tried and reported in any case.
set -euo pipefail

source=$(cd "$(dirname "$0")/.." && pwd)
faults=$source/tools/mutants.txt

# apply FILE FROM TO: puts one fault into FILE.
apply() {
  FROM=$2 TO=$3 perl -0pi -e '$n = s/\Q$ENV{FROM}\E/$ENV{TO}/; END { $? = $n ? 0 : 1 }' "$1"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Applies each fault to a copy of its file. Returns 1 if one does not apply.
check_applies() {
  local number=0 wrong=0 file from to copy=$work/applied
  while IFS=$'\t' read -r file from to; do
    [[ -z $file || $file == \#* ]] && continue
    number=$((number + 1))
    if ! cp "$source/backends/cpu/$file" "$copy" 2>/dev/null || ! apply "$copy" "$from" "$to" ||
       cmp -s "$source/backends/cpu/$file" "$copy"; then
      echo "$number: does not apply to backends/cpu/$file: $from"
      wrong=$((wrong + 1))
    fi
  done <"$faults"
  echo "$((number - wrong)) of $number faults apply"
  ((number > 0 && wrong == 0))
}

# Copies the sources to $work and configures them in $work/build.
configure_copy() {
  cp -r "$source/CMakeLists.txt" "$source/cmake" "$work/"
  for folder in "$source"/*/CMakeLists.txt; do
    cp -r "${folder%/CMakeLists.txt}" "$work/"
  done
  # A fault is the same without much optimisation, and compiled in a third of the time.
  cmake -S "$work" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 \
    -DRULLAMA_TESTS=OFF >/dev/null
}

if [[ ${1:-} == --apply ]]; then
  check_applies
  configure_copy
  exit
fi
if [[ $# -lt 1 || ! -x $1/bin/rullama-conformance ]]; then
  echo "usage: tools/check-mutants.sh BUILD_DIR [FIRST [LAST]]; BUILD_DIR has bin/rullama-conformance" >&2
  echo "       tools/check-mutants.sh --apply" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
first=${2:-1}
last=${3:-1000}

broken=0
check_applies || broken=1

configure_copy
plugin=$work/build/lib/rullama/librullama_backend_cpu.so

compile() {
  cmake --build "$work/build" --target rullama_backend_cpu >"$work/build.log" 2>&1
}

# conformance [--quick]
conformance() {
  timeout 600 "$build/bin/rullama-conformance" --plugin "$plugin" \
    --manifest "$source/backends/cpu/conformance.json" "$@" >"$work/log" 2>&1
}
failed_tests() { grep -c '^\[  FAILED  \]' "$work/log" || true; }

echo "without a fault"
compile || { tail -40 "$work/build.log"; echo "does not compile without a fault" >&2; exit 1; }
conformance || { tail -40 "$work/log"; echo "fails without a fault" >&2; exit 1; }

number=0
quick=0
whole=0
survivors=0
while IFS=$'\t' read -r file from to; do
  [[ -z $file || $file == \#* ]] && continue
  number=$((number + 1))
  if ((number < first || number > last)); then continue; fi
  path=$work/backends/cpu/$file
  if ! apply "$path" "$from" "$to"; then continue; fi  # reported above
  if ! compile; then
    echo "$number: DOES NOT COMPILE $file: $from -> $to"
    grep -m 3 "error:" "$work/build.log" || true
    broken=1
  elif ! conformance --quick; then
    echo "$number: caught by $(failed_tests) tests of --quick: $file: $from"
    quick=$((quick + 1))
  elif ! conformance; then
    echo "$number: caught by $(failed_tests) tests, none of --quick: $file: $from"
    whole=$((whole + 1))
  else
    echo "$number: SURVIVED $file: $from -> $to"
    survivors=$((survivors + 1))
  fi
  cp "$source/backends/cpu/$file" "$path"
done <"$faults"
echo "$quick caught by --quick, $whole by the other cases, $survivors survived"
if [[ $# -eq 1 ]] && ((34 * quick < 30 * (quick + whole + survivors))); then
  echo "CI finds too few of the faults: conformance/quick_cases.cc chooses its cases" >&2
  broken=1
fi
((survivors == 0 && broken == 0))
