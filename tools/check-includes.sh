#!/bin/bash
# Checks that no source lacks an include. CI's builds compile the sources of a target together, where
# one finds the includes of another. Names of the C++ library are looked up in a table
# (check-std-includes.py); all other names are left to the compiler, which reads every source that is not
# a test by itself, after the headers of that table, precompiled: reading them takes two thirds of the
# time without.
#
#   tools/check-includes.sh BUILD_DIR [JOINED_DIR]
#
# BUILD_DIR is configured for one compilation per source (preset clang); nothing need be built there.
# JOINED_DIR is a finished build that compiles sources together (preset asan): the first source of each
# compilation has none before it, so it is left out here.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $# -lt 1 || $# -gt 2 || ! -f "$1/compile_commands.json" ]]; then
  echo "usage: tools/check-includes.sh BUILD_DIR [JOINED_DIR]; BUILD_DIR has compile_commands.json" >&2
  exit 2
fi
# Prints "-c SOURCE" for the first source of each compilation of a build, after a line that no command contains.
first_sources() {
  echo "-c (none)"
  if [[ -n $1 ]]; then
    find "$1" -path '*/Unity/unity_*_cxx.cxx' ! -path '*_test.dir/*' \
      -exec sed -n '/^#include "/ {s/#include "\(.*\)"/-c \1/p; q}' {} \;
  fi
}

# Sources that are never joined (tests, plugins) compile by themselves in every build, so they
# cannot lack an include; kernels include no more than one header each, and sources of vulkan/
# headers that a build makes of shaders.
mapfile -t commands < <(sed -n 's/^ *"command": "\(.*\)",\?$/\1/p' "$1/compile_commands.json" |
  sed 's/\\"/"/g; s/\\\\/\\/g' | grep -E -- '-c [^ ]*/(core|media|models|samplers|engine|server|downloads|cli|conformance|backends/[a-z]*|bench|web)/[^ ]*\.cc$' |
  grep -vE -- '_test\.cc$|_fuzz\.cc$|_test_util\.cc$|/kernels/|/vulkan/|_test\.dir/' |
  grep -vFf <(first_sources "${2:-}"))
if [[ ${#commands[@]} -eq 0 ]]; then echo "no sources found" >&2; exit 1; fi

status=0
tools/check-std-includes.py || status=$?

# One precompiled header serves the targets' different definitions and code generation, which matter
# little for names: -fno-validate-pch.
tools/check-std-includes.py --headers > "$1/checked_headers.h"
cd "$1"
clang++ -std=c++20 -O2 -fPIC -DNDEBUG -DFMT_SHARED -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL \
  -DSPDLOG_SHARED_LIB -fvisibility=hidden -fvisibility-inlines-hidden -fpch-instantiate-templates \
  -x c++-header checked_headers.h -o checked_headers.pch
readonly alone="-fsyntax-only -include-pch checked_headers.pch -Xclang -fno-validate-pch"
printf "%s $alone\0" "${commands[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c || status=$?
echo "${#commands[@]} sources checked"
exit $status
