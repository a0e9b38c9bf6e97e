#!/bin/bash
# Runs clang-tidy (.clang-tidy) over every source that is not a test; each finding is an error. Tests
# and what only they use are left out: GoogleTest's macros double the time and hide most findings
# behind expansions.
#
#   tools/check-tidy.sh BUILD_DIR [FILE.cc...]
#
# BUILD_DIR has a compile_commands.json, best of clang. Where sources are compiled together (preset
# asan) they are checked together. With files, only these are checked; they need a build that compiles
# them one by one (preset clang).
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $# -lt 1 || ! -f "$1/compile_commands.json" ]]; then
  echo "usage: tools/check-tidy.sh BUILD_DIR [FILE.cc...]; BUILD_DIR has compile_commands.json" >&2
  exit 2
fi
build=$1
shift

if [[ $# -gt 0 ]]; then
  files=("$@")
else
  # Only files that the build compiles are checked: kernels of another processor are not in its
  # database. For tests these include the joined sources, which lie in the build folder of their
  # target.
  mapfile -t files < <(sed -n 's/^ *"file": "\(.*\.\(cc\|cxx\)\)",\?$/\1/p' "$build/compile_commands.json" |
    grep -vE '/tests/|_test\.cc$|_test\.dir/|_fuzz\.cc$|_corpus\.dir/|_fuzz\.dir/|_headers\.cc$' | sort -u)
fi
if [[ ${#files[@]} -eq 0 ]]; then echo "no sources found" >&2; exit 1; fi

# One process for each core. Findings go to standard output; the rest is counts of suppressed warnings
# in system headers.
status=0
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p "$build" 2>/dev/null || status=$?
echo "${#files[@]} files checked"
exit $status
