#!/bin/bash
# Runs clang-tidy (.clang-tidy) over every source that is not a test; each finding is an error. Tests
# and what only they use are left out: GoogleTest's macros double the time and hide most findings
# in expansions.
#
#   tools/check-tidy.sh BUILD_DIR [FILE.cc...]
#
# BUILD_DIR has a compile_commands.json, best of clang. Where sources are compiled together (preset
# asan) they are checked together. With files, only these are checked; they need a build that compiles
# them one by one (preset clang).
#
# clang-tidy is the one of tools/requirements.txt, which tools/install-deps.sh installs: unlike that of
# Debian 12 it does not examine the headers of libraries, which takes half of the time.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $# -lt 1 || ! -f "$1/compile_commands.json" ]]; then
  echo "usage: tools/check-tidy.sh BUILD_DIR [FILE.cc...]; BUILD_DIR has compile_commands.json" >&2
  exit 2
fi
readonly build=$1
shift
readonly tidy=.venv/bin/clang-tidy
if [[ ! -x $tidy ]]; then
  echo "no $tidy; tools/install-deps.sh installs it" >&2
  exit 2
fi

if [[ $# -gt 0 ]]; then
  files=("$@")
else
  # Only files that the build compiles are checked: kernels of another processor are not in its
  # database. For tests these include the joined sources and precompiled headers, which lie in the
  # build folder of their target.
  mapfile -t files < <(sed -n 's/^ *"file": "\(.*\.\(cc\|cxx\)\)",\?$/\1/p' "$build/compile_commands.json" |
    grep -vE '/tests/|_test\.cc$|_test\.dir/|_fuzz\.cc$|_corpus\.dir/|_fuzz\.dir/|_headers\.(cc$|dir/)' | sort -u)
fi
if [[ ${#files[@]} -eq 0 ]]; then echo "no sources found" >&2; exit 1; fi

# A database of its own: of the commands that compile a kernel source for each instruction-set level
# it has one, that with the most flags, whose level has all code. The table of levels keeps all: it
# is short, and includes the vocabulary (simd.h) of each level. Precompiled headers are left out, which
# only the compiler that made them can read.
mkdir -p "$build/tidy"
python3 - "$build" <<'END'
import json, re, sys
commands = {}
for entry in json.load(open(f"{sys.argv[1]}/compile_commands.json")):
    entry["command"] = re.sub(r"-Winvalid-pch|-Xclang -include-pch -Xclang \S+", "", entry["command"])
    commands.setdefault(entry["file"], []).append(entry)
chosen = []
for file, entries in commands.items():
    every_level = file.endswith("/level_table.cc")
    chosen += entries if every_level else [max(entries, key=lambda e: len(e["command"]))]
json.dump(chosen, open(f"{sys.argv[1]}/tidy/compile_commands.json", "w"), indent=1)
END

# The headers of sanitizers come with the compiler, which clang-tidy has no part of.
mkdir -p "$build/tidy/include"
ln -sfn "$(clang -print-resource-dir)/include/sanitizer" "$build/tidy/include/sanitizer"

# One process for each core. Warnings of the compiler are for builds to show. Findings go to standard
# output; the rest is counts of suppressed warnings in system headers.
status=0
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(nproc)" "$tidy" --quiet -p "$build/tidy" --extra-arg=-w \
      --extra-arg="-isystem$PWD/$build/tidy/include" 2>/dev/null || status=$?
echo "${#files[@]} files checked"
exit $status
