#!/bin/bash
# check-cpu-only.sh WORK_DIR: builds the program without the GPU backends, in a folder whose name has blanks, brackets
# and letters of other languages, and answers with it. Without RULLAMA_GPU=OFF, a compiler of shaders or a library that
# is missing has to be an error that names its package. CMAKE_BUILD_PARALLEL_LEVEL bounds the compilers, 2 by default.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
work="$(realpath -m "$1")/Größe (1) мир"
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-2}

rm -rf "$work"
mkdir -p "$work/rullama"
(cd "$source" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -c --ignore-failed-read) |
  tar -x -C "$work/rullama"
cd "$work/rullama"

# expect_missing WORDS OPTION...: configuring with these options fails with all of the words.
expect_missing() {
  local words=$1 found
  shift
  if found=$(cmake -G Ninja -B missing -DRULLAMA_TESTS=OFF "$@" 2>&1); then
    echo "configured with $*, expected an error that names $words" >&2
    exit 1
  fi
  rm -rf missing
  for word in $words tools/install-deps.sh RULLAMA_GPU=OFF; do
    if [[ $found != *"$word"* ]]; then
      printf '%s\n%s\n' "$found" "configuring with $* does not name $word" >&2
      exit 1
    fi
  done
}
expect_missing "glslangValidator glslang-tools" -DRULLAMA_GLSLANG=OFF
expect_missing "SPIRV-Tools spirv-tools" -DCMAKE_DISABLE_FIND_PACKAGE_SPIRV-Tools-opt=ON

cmake -G Ninja -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DRULLAMA_LIGHT=ON \
  -DRULLAMA_FEW_CPU_LEVELS=ON -DRULLAMA_GPU=OFF -DRULLAMA_TESTS=OFF
cmake --build build
if compgen -G 'build/lib/rullama/*vulkan*' || compgen -G 'build/lib/rullama/*opencl*'; then
  echo "RULLAMA_GPU=OFF has built a GPU backend" >&2
  exit 1
fi
answer=$(build/bin/rullama -m tests/data/tiny-e2b-Q4_K_M.gguf --greedy -p "Who is Andrew?" -n 8)
echo "$answer"
[[ -n $answer ]]
