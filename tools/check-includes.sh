#!/bin/bash
# Compiles every source that is not a test by itself, without writing anything: CI's builds compile the
# sources of a target together, where one finds the includes of another.
#
#   tools/check-includes.sh BUILD_DIR
#
# BUILD_DIR is configured for one compilation per source (preset clang); nothing need be built there.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $# -ne 1 || ! -f "$1/compile_commands.json" ]]; then
  echo "usage: tools/check-includes.sh BUILD_DIR; BUILD_DIR has compile_commands.json" >&2
  exit 2
fi
# Sources that are never joined (tests, plugins) compile by themselves in every build, so they
# cannot lack an include; kernels include no more than one header each.
mapfile -t commands < <(sed -n 's/^ *"command": "\(.*\)",\?$/\1/p' "$1/compile_commands.json" |
  sed 's/\\"/"/g; s/\\\\/\\/g' | grep -E -- '-c [^ ]*/(core|media|models|samplers|engine|server|cli|conformance|backends/cpu|backends/gpu|backends/opencl|bench)/[^ ]*\.cc$' |
  grep -vE -- '_test\.cc$|_fuzz\.cc$|_test_util\.cc$|/kernels/|_test\.dir/')
if [[ ${#commands[@]} -eq 0 ]]; then echo "no sources found" >&2; exit 1; fi

cd "$1"
status=0
printf '%s -fsyntax-only\0' "${commands[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c || status=$?
echo "${#commands[@]} sources checked"
exit $status
