#!/bin/bash
# Unpacks what the preset wasm compiles with, from the packages of Debian 13, into build/emscripten: Emscripten with its
# compiler and its C++ library, and the sources of the libraries that the module contains. apt checks the signature of
# the archive and the digest of each package. Needs no root: the packages are not installed.
#
#   tools/emscripten-root.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/package-root.sh

readonly version=3.1.69+dfsg-3
packages=("emscripten=$version" base-files dash googletest libexpected-dev libfmt-dev libspdlog-dev libxxhash-dev
          nlohmann-json3-dev)
readonly source_package=yaml-cpp

readonly root=$PWD/build/emscripten
readonly apt=$PWD/build/emscripten-apt
# Says by which version of this script the folder was made, so that a changed one makes it anew.
digest=$(cat "tools/${0##*/}" tools/package-root.sh | sha256sum | cut -c 1-16)
readonly done_file=$root/.unpacked-$digest
if [[ -e $done_file ]]; then exit 0; fi
rm -rf "$root"

mkdir -p "$apt"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
archive="[arch=amd64 signed-by=$keyring] http://deb.debian.org/debian trixie main"
printf 'deb %s\ndeb-src %s\n' "$archive" "$archive" >"$apt/sources.list"
make_package_database "$apt" amd64 -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=-
unpack_packages "$apt" "$root" "${packages[@]}"
mkdir -p "$root/usr/src/$source_package"
(cd "$apt" && apt-get "${apt_options[@]}" source --download-only "$source_package")
tar --extract --file "$apt/$source_package"_*.orig.tar.* --directory "$root/usr/src/$source_package" --strip-components 1

# The tools run with the programs and libraries of the packages in place of those of this machine, all else being the
# same: they see sources and builds where they are. They run from their folder below the root, so that the paths of
# headers that they tell Ninja and ccache exist outside as well.
mkdir -p "$root/tools"
for tool in em++ emcc emar emranlib; do
  cat >"$root/tools/$tool" <<END
#!/bin/bash
enter='mount --bind "\$0/usr" /usr && EM_LLVM_ROOT=\$0/usr/bin exec /usr/bin/python3 -E "\$@"'
map=()
if [[ \$EUID -ne 0 ]]; then map=(--map-root-user); fi
root=\${0%/*/*}
exec env PATH=/usr/bin unshare --mount "\${map[@]}" bash -c "\$enter" "\$root" \
  "\$root/usr/share/emscripten/$tool.py" "\$@"
END
  chmod +x "$root/tools/$tool"
done

# The headers of the libraries without those of this machine's C library.
mkdir -p "$root/usr/libraries"
for name in fmt nlohmann spdlog tl; do
  ln -s "../include/$name" "$root/usr/libraries/$name"
done
# With SIMD of WebAssembly xxhash would use the header of ARM's instructions that SIMDe has, and take clang's for it.
cat >"$root/usr/libraries/xxhash.h" <<END
#pragma once
#pragma push_macro("__wasm_simd128__")
#undef __wasm_simd128__
#include "../include/xxhash.h"
#pragma pop_macro("__wasm_simd128__")
END
touch "$done_file"
