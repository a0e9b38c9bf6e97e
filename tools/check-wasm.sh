#!/bin/bash
# Builds the engine as WebAssembly and runs its tests in node and headless Chromium. tools/install-deps.sh --all installs
# both.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/emscripten-root.sh
cmake --preset wasm
cmake --build --preset wasm
ctest --preset wasm --no-tests=error
