#!/bin/bash
# Builds the libFuzzer targets (preset fuzz) and lets each run for SECONDS, from its corpus in tests/fuzz.
#
#   tools/check-fuzz.sh SECONDS [TARGET...]
#
# What makes a target fail stays in build/fuzz/findings. Exit status 1 if one did; the others run all the same.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $# -lt 1 || ! $1 =~ ^[0-9]+$ ]]; then
  echo "usage: tools/check-fuzz.sh SECONDS [TARGET...]" >&2
  exit 2
fi
readonly seconds=$1
shift

cmake --preset fuzz
# Each target and its corpus, as the build system has them.
mapfile -t rows <build/fuzz/fuzzers.txt
names=()
for row in "${rows[@]}"; do names+=("${row%% *}"); done
if [[ $# -gt 0 ]]; then names=("$@"); fi
cmake --build --preset fuzz --target "${names[@]}"

mkdir -p build/fuzz/findings
fuzz() {
  local name=$1 corpus=$2 grown=build/fuzz/corpus/$1
  mkdir -p "$grown"
  if ! build/fuzz/bin/"$name" "$grown" "$corpus" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 \
      -artifact_prefix=build/fuzz/findings/"$name"- -verbosity=0 -print_final_stats=1 >build/fuzz/"$name".log 2>&1; then
    echo "$name FAILED:"
    tail -40 build/fuzz/"$name".log
    return 1
  fi
  echo "$name: $(grep -o 'number_of_executed_units: *[0-9]*' build/fuzz/"$name".log)"
}
export -f fuzz
export seconds
for row in "${rows[@]}"; do
  if [[ " ${names[*]} " == *" ${row%% *} "* ]]; then echo "$row"; fi
done | xargs -P "$(nproc)" -L 1 bash -euo pipefail -c 'fuzz "$@"' _
