#!/bin/bash
# build_and_run.sh BUILD_DIR WORK_DIR: installs the package, builds the examples against it as a stranger would, with
# CMake and with pkg-config, and runs them.
set -euo pipefail

source=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"

cmake --install "$build" --prefix "$work/prefix" >/dev/null
cp -r "$source/examples/cpp" cpp
cmake -S cpp -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build build
model=$work/prefix/share/rullama/models/tiny-e2b-Q4_K_M.gguf

answer=$(build/chat "$model" 'Who is "Anna" Pavlovna?')
echo "chat: $answer"
[[ -n $answer ]]

# The lines of several prompts at once are those of each alone, and those of the program.
together=$(build/together "$model" "The prince" "It was in July" "Well, my")
alone=$(for prompt in "The prince" "It was in July" "Well, my"; do build/together "$model" "$prompt"; done)
program=$(for prompt in "The prince" "It was in July" "Well, my"; do
  "$work/prefix/bin/rullama" run "$model" -p "$prompt" --raw --greedy -n 16 -q; done)
echo "together: $together"
if [[ -z $together || $together != "$alone" || $together != "$program" ]]; then
  echo "alone they are: $alone" >&2
  echo "the program writes: $program" >&2
  exit 1
fi

# Errors have the exit codes of the program.
code=0
build/chat /nowhere.gguf Hello 2>error.txt || code=$?
if ((code != 6)) || ! grep -q 'io.open' error.txt; then
  echo "a missing file gave exit code $code and: $(cat error.txt)" >&2
  exit 1
fi

export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
# shellcheck disable=SC2046
"${CXX:-c++}" -std=c++20 cpp/chat.cc $(pkg-config --cflags --libs rullama) -Wl,-rpath,"$work/prefix/lib" -o chat
[[ $(./chat "$model" 'Who is "Anna" Pavlovna?') == "$answer" ]]
