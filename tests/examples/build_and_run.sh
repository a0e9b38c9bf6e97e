#!/bin/bash
# build_and_run.sh BUILD_DIR WORK_DIR PYTHON: installs the package, builds the examples in C and C++ against it as a
# stranger would, with CMake and with pkg-config, and runs them. If PYTHON is 1, the examples in Python run with the
# installed Python package.
set -euo pipefail

source=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
work=$2
with_python=$3
rm -rf "$work"
mkdir -p "$work"
cd "$work"

cmake --install "$build" --prefix "$work/prefix" >/dev/null
for file in man/man1/rullama.1 man/man1/rullama-run.1 bash-completion/completions/rullama \
  zsh/site-functions/_rullama fish/vendor_completions.d/rullama.fish; do
  [[ -s $work/prefix/share/$file ]]
done
cp -r "$source/examples/cpp" "$source/examples/c" .
cmake -S cpp -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build build
cmake -S c -B build_c -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build build_c
model=$work/prefix/share/rullama/models/tiny-e2b-Q4_K_M.gguf

answer=$(build/chat "$model" 'Who is "Anna" Pavlovna?')
echo "chat: $answer"
[[ -n $answer ]]

# The program in C asks for the same.
if [[ $(build_c/chat "$model" 'Who is "Anna" Pavlovna?') != "$answer" ]]; then
  echo "the C program writes something else" >&2
  exit 1
fi

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
for chat in build/chat build_c/chat; do
  code=0
  $chat /nowhere.gguf Hello 2>error.txt || code=$?
  if ((code != 6)) || ! grep -q 'io.open' error.txt; then
    echo "$chat: a missing file gave exit code $code and: $(cat error.txt)" >&2
    exit 1
  fi
done

export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
read -ra flags < <(pkg-config --cflags --libs rullama)
flags+=("-Wl,-rpath,$work/prefix/lib")
"${CXX:-c++}" -std=c++20 cpp/chat.cc "${flags[@]}" -o chat
"${CC:-cc}" -std=c99 -Wall -Wextra -Wpedantic -Werror c/chat.c "${flags[@]}" -o chat_c
for chat in ./chat ./chat_c; do
  [[ $($chat "$model" 'Who is "Anna" Pavlovna?') == "$answer" ]]
done

# A compiler of an older standard is told what is missing.
if "${CXX:-c++}" -std=c++17 -fsyntax-only cpp/chat.cc "${flags[@]}" 2>error.txt ||
  ! grep -q 'compile with -std=c++20' error.txt; then
  echo "cpp/chat.cc as C++17 gave: $(head -n 3 error.txt)" >&2
  exit 1
fi

# The programs of docs/library.md, which continue a prompt greedily.
for language in c cpp; do
  awk -v fence="\`\`\`$language" '$0 == fence { inside = 1; next } /^```/ { inside = 0 } inside' \
    "$source/docs/library.md" >page.$language
done
"${CC:-cc}" -std=c99 -Wall -Wextra -Wpedantic -Werror page.c "${flags[@]}" -o page_c
"${CXX:-c++}" -std=c++20 page.cpp "${flags[@]}" -o page_cpp
expected=$("$work/prefix/bin/rullama" run "$model" -p "The prince" --raw --greedy -n 20 -q)
for page in ./page_c ./page_cpp; do
  [[ -n $expected && $($page "$model" "The prince") == "$expected" ]]
done

# The Python package of the prefix, with nothing of the build tree on its search path.
if ((with_python)); then
  python=$source/.venv/bin/python
  packages=$(compgen -G "$work/prefix/lib/python3.*/site-packages")
  export PYTHONPATH=$packages PYTHONPYCACHEPREFIX=$source/.venv/pycache
  [[ $($python -c 'import rullama; print(rullama.__file__)') == "$packages/rullama/__init__.py" ]]
  greedy=$("$work/prefix/bin/rullama" run "$model" -p 'Who is "Anna" Pavlovna?' --greedy -n 64 -q)
  [[ -n $greedy && $($python "$source/examples/python/chat.py" "$model" 'Who is "Anna" Pavlovna?' cpu) == "$greedy" ]]
  [[ $($python "$source/examples/python/together.py" "$model" "The prince" "It was in July" "Well, my") == "$together" ]]
fi
