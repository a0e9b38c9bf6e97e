#!/bin/bash
# build_and_run.sh BUILD_DIR WORK_DIR: installs the package, builds this folder against it as a stranger would, runs its
# tests and writes text with it. The compiler sees no header of the source tree.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$1
work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"

cmake --install "$build" --prefix "$work/prefix" >/dev/null
"$work/prefix/bin/rullama" new-backend external
cp "$here"/CMakeLists.txt "$here"/*.h "$here"/*.cc external/
cp "$here/../data/tiny-e2b-Q4_K_M.gguf" model.gguf
cmake -S external -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" \
      -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
foreign=$(grep -oE -- '(-I|-isystem) *[^ ]+' build/compile_commands.json | sed -E 's/^(-I|-isystem) *//' |
  grep -v "^$work/" || true)
if [[ -n $foreign ]]; then
  echo "the include path leads outside of the installed package: $foreign" >&2
  exit 1
fi
cmake --build build
ctest --test-dir build --no-tests=error --output-on-failure

cat >external.yaml <<YAML
model:
  path: model.gguf
backend:
  name: external
placement:
  fallback: allow
generation:
  raw: true
YAML
plugin=$work/build/lib/rullama/librullama_backend_external.so
run=("$work/prefix/bin/rullama" --config external.yaml --plugin "$plugin" -p "The prince" -n 16 --greedy)
mine=$("${run[@]}")
theirs=$("${run[@]}" --backend cpu)
echo "external: $mine"
if [[ -z $mine || $mine != "$theirs" ]]; then
  echo "cpu wrote instead: $theirs" >&2
  exit 1
fi
# Its ops run on the plugin, not all on the host.
"${run[@]}" -v 2>&1 >/dev/null | grep -E "external runs [1-9][0-9]* ops"
