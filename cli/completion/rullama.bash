# Completion of rullama for bash. The program itself lists what fits, from its options.
_rullama() {
  local program=${1/#\~\//$HOME/} line=${COMP_LINE:0:COMP_POINT} part spaces
  local words=() i
  # Bash also splits words at ':' and '='; parts with nothing between them are one word.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    spaces=${line%%[![:space:]]*}
    line=${line:${#spaces}}
    part=${line:0:${#COMP_WORDS[i]}}
    line=${line:${#part}}
    if [[ -n $spaces || ${#words[@]} -eq 0 ]]; then
      words+=("$part")
    else
      words[-1]+=$part
    fi
  done
  local current=${words[-1]} answer
  mapfile -t answer < <("$program" __complete "${words[@]:1}" 2>/dev/null)
  if [[ ${answer[0]-} == files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${#answer[@]}" answer < <(compgen -f -- "$current")
  fi
  # Only what follows the last such character is replaced on the line.
  local kept=${current%"${current##*[:=]}"} candidate
  COMPREPLY=()
  for candidate in "${answer[@]:1}"; do
    candidate=${candidate%%$'\t'*}
    COMPREPLY+=("${candidate#"$kept"}")
  done
}
complete -F _rullama rullama
