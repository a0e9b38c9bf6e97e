# Sourced by .ci/run and tools/check-all.sh: the stages of a check, each timed, and a table of them.
#
#   run_stage NAME COMMAND...        runs COMMAND below a heading; returns its status
#   skip_stage NAME WHY [WALL CPU]   a row for a stage that does not run, with the seconds that it took before
#   seconds_of_last_stage            prints the seconds of the last row, by the clock and of processors
#   print_stages                     prints a row for each stage: result, seconds by the clock, and
#                                    seconds of processors, of COMMAND and of all that it waited for
stage_rows=()
stages_started=$SECONDS

run_stage() {
  local name=$1 started=$SECONDS times status=0 result=passed
  shift
  times=$(mktemp)
  printf '\n==== %s (after %d s)\n' "$name" $((SECONDS - stages_started))
  local TIMEFORMAT='%U %S'
  # Only the line of `time` goes to the file: the command writes to the standard error of the script.
  { time "$@" 2>&3; } 3>&2 2>"$times" || status=$?
  if ((status != 0)); then result="FAILED ($status)"; fi
  stage_rows+=("$(awk -v name="$name" -v result="$result" -v wall=$((SECONDS - started)) \
    '{ printf "%-24s %-14s %6d %6d", name, result, wall, $1 + $2 }' "$times")")
  rm -f "$times"
  return "$status"
}

skip_stage() { stage_rows+=("$(printf '%-24s %-14s %6d %6d' "$1" "$2" "${3:-0}" "${4:-0}")"); }

seconds_of_last_stage() { awk '{ print $(NF - 1), $NF }' <<<"${stage_rows[-1]}"; }

print_stages() {
  printf '\n%-24s %-14s %6s %6s\n' stage result wall cpu
  printf '%s\n' "${stage_rows[@]}"
  printf '%s\n' "${stage_rows[@]}" |
    awk '{ wall += $(NF - 1); cpu += $NF } END { printf "%-39s %6d %6d\n", "all", wall, cpu }'
}
