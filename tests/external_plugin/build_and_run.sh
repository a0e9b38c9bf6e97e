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
# The manual, the licence, the configurations and a model come with the package.
share=$work/prefix/share
for file in doc/rullama/LICENSE doc/rullama/README.md doc/rullama/docs/ops.md doc/rullama/docs/numerics.md \
            doc/rullama/docs/configuration.md rullama/configs/e2b.yaml; do
  if [[ ! -s $share/$file ]]; then
    echo "the package has no share/$file" >&2
    exit 1
  fi
done
"$work/prefix/bin/rullama" --config "$share/rullama/configs/tiny.yaml" -p "The prince" -n 4 >/dev/null
"$work/prefix/bin/rullama" new-backend external >new_backend.txt
cat new_backend.txt
guide=$(sed -n 's/^The guide continues from here: //p' new_backend.txt)
if [[ $guide != "$share"/* || ! -s $guide ]]; then
  echo "new-backend names the guide '$guide', expected a file of the package" >&2
  exit 1
fi
cp "$here"/CMakeLists.txt "$here"/*.h "$here"/*.cc external/
cp "$share/rullama/models/tiny-e2b-Q4_K_M.gguf" model.gguf
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
