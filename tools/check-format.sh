#!/bin/bash
# Fails if a source is not laid out as .clang-format says or has more than 1,000 lines, or if a
# document has a line of more than 120 columns. Rows of tables and code blocks may be longer.
#
#   tools/check-format.sh         checks
#   tools/check-format.sh --fix   formats in place
set -euo pipefail
cd "$(dirname "$0")/.."

readonly max_lines=1000  # a file of that length holds more than one idea
readonly max_columns=120 # of Markdown

# Found without git, so that an unpacked archive can be checked too. Left out: the ABI header, whose
# comments are tables laid out by hand, and its frozen copies.
mapfile -d '' -t files < <(find core media backends models samplers engine server downloads cli conformance python examples tests web \
  bench \( -name '*.cc' -o -name '*.c' -o -name '*.h' -o -name '*.comp' -o -name '*.glsl' -o -name '*.cl' -o -name '*.cuh' -o -name '*.kernel' \) ! -path core/abi/rullama_abi.h ! -path 'tests/*/frozen_*' -print0 | sort -z)
if [[ ${#files[@]} -eq 0 ]]; then echo "no sources found" >&2; exit 1; fi

if [[ "${1:-}" == --fix ]]; then
  clang-format -i "${files[@]}"
  exit 0
fi

status=0
unformatted=$(printf '%s\0' "${files[@]}" |
  xargs -0 -n 32 -P "$(nproc)" clang-format --dry-run -Werror 2>&1 | grep -oE '^[^ :]+:[0-9]+' || true)
if [[ -n $unformatted ]]; then
  sort -u -t: -k1,1 <<<"$unformatted"
  echo "not formatted; run tools/check-format.sh --fix"
  status=1
fi
while read -r lines file; do
  if ((lines > max_lines)) && [[ $file != total ]]; then
    echo "$file: $lines lines, at most $max_lines"
    status=1
  fi
done < <(wc -l "${files[@]}")

# Pages made from code have lines as long as its texts: docs/ops*.md and docs/configuration.md.
mapfile -d '' -t pages < <(find . -maxdepth 1 -name '*.md' -print0
  find docs .github backends bench cli configs conformance core engine examples media models python samplers server \
    tests tools -name '*.md' ! -path 'docs/ops*.md' ! -path docs/configuration.md ! -path '*/frozen_*' -print0)
for page in "${pages[@]}"; do
  if ! MAX=$max_columns perl -CSD -ne '
      if (/^ *```/) { $code = !$code; next }
      chomp;
      next if $code or /^ *\|/ or length() <= $ENV{MAX};
      print "$ARGV:$.: ", length(), " columns, at most $ENV{MAX}\n";
      $bad = 1;
      END { $? = $bad // 0 }' "$page"; then
    status=1
  fi
done
echo "${#files[@]} sources and ${#pages[@]} documents checked"
exit $status
