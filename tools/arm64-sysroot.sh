#!/bin/bash
# Unpacks what cross-building for ARM (preset arm64) links to, from the packages of this Debian for
# arm64, into build/arm64-sysroot. Needs no root: the packages are not installed.
#
#   tools/arm64-sysroot.sh          what the cpu plugin and its tests need: the C++ library, GoogleTest
#   tools/arm64-sysroot.sh --host   that, and the libraries of the program
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/package-root.sh

packages=(libc6-dev libstdc++6 libgtest-dev libgmock-dev)
case "${1:-}" in
  "") name=plugin ;;
  --host)
    name=host
    packages+=($(tools/install-deps.sh --libraries))
    ;;
  *) echo "usage: tools/arm64-sysroot.sh [--host]" >&2; exit 2 ;;
esac

readonly root=$PWD/build/arm64-sysroot
readonly apt=$PWD/build/arm64-apt
readonly done_file=$root/.unpacked-$name
if [[ -e $done_file || -e $root/.unpacked-host ]]; then exit 0; fi

make_package_database "$apt" arm64
unpack_packages "$apt" "$root" "${packages[@]}"
touch "$done_file"
