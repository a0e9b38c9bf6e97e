#!/bin/bash
# Builds the Debian packages, installs them in a fresh Debian 12, uses them there, and removes and
# purges them again: nothing may be left. Needs root, the network, debootstrap and lintian; not part of
# CI.
#
#   tests/packages/in_chroot.sh [--packages FOLDER] WORK_DIR
#
# WORK_DIR gets the build and, while the script runs, the system in WORK_DIR/root. With --packages the
# *.deb of that folder are tried and nothing is built. Without DEBFULLNAME and DEBEMAIL the author of
# the last commit is the maintainer of the packages. CMAKE_OPTIONS: more options of CMake for the build.
set -euo pipefail

source=$(cd "$(dirname "$0")/../.." && pwd)
source "$source/tools/fresh-system.sh"
read_packages_and_work tests/packages/in_chroot.sh "$@"
require_fresh_system lintian
root=$work/root

if [[ -z $folder ]]; then
  step "build"
  if [[ -z ${DEBEMAIL:-} ]]; then
    DEBFULLNAME=$(git -C "$source" log -1 --format=%an)
    DEBEMAIL=$(git -C "$source" log -1 --format=%ae)
    export DEBFULLNAME DEBEMAIL
  fi
  read -ra options <<<"${CMAKE_OPTIONS:-}"
  (cd "$source" && cmake --preset deb -B "$work/build" "${options[@]}" && cmake --build "$work/build")
  rm -rf "$work/build/packages"
  (cd "$work/build" && cpack)
  folder=$work/build/packages
fi
packages=("$folder"/*.deb)
step "lintian"
lintian --fail-on error --allow-root "${packages[@]}"

# Drivers of cards are not in Debian's main section, so apt would refuse to install their backends here.
mapfile -t cards < <(sed -n 's/^RL_CARD_BACKEND(\([a-z_0-9]*\)).*/\1/p' "$source/backends/gpu_backends.def")
installed=()
for package in "${packages[@]}"; do
  name=$(dpkg-deb --field "$package" Package)
  backend=${name#rullama-backend-}
  if [[ " ${cards[*]} " != *" $backend "* ]]; then
    installed+=("$package")
    continue
  fi
  step "$name has its backend"
  [[ $(dpkg-deb --contents "$package") == *"/rullama/librullama_backend_$backend.so"* ]] || fail "$name lacks its backend"
done
packages=("${installed[@]}")

step "a fresh system"
trap 'remove_fresh_system "$root"' EXIT
make_fresh_system "$root" "$work/debootstrap.log"
inside() {
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
}
# Everything of the system but what the package manager keeps about itself.
list_files() {
  inside find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /packages \
    -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/log \) -prune \
    -o -print | LC_ALL=C sort
}
mkdir "$root/packages"
cp "${packages[@]}" "$root/packages/"
inside apt-get update -q
names=()
for package in "${packages[@]}"; do names+=("$(dpkg-deb --field "$package" Package)"); done
# The dependencies of the packages and of the example are installed before the first list of files is
# made, so that the lists differ by the packages alone.
mapfile -t dependencies < <(inside sh -c 'exec apt-get install -s -q --no-install-recommends /packages/*.deb' |
  awk '$1 == "Inst" {print $2}' | grep -vxFf <(printf '%s\n' "${names[@]}"))
inside apt-get install -q -y --no-install-recommends g++ cmake make pkg-config man-db bash-completion \
  "${dependencies[@]}" >"$work/apt.log"
list_files >"$work/before.txt"

step "install"
inside sh -c 'exec apt-get install -q -y --no-install-recommends /packages/*.deb'
share=/usr/share/rullama

step "the program"
inside rullama --version
text=$(inside rullama --config $share/configs/tiny.yaml --backend cpu -p "The prince" -n 16 --greedy -q)
echo "$text"
[[ -n $text ]] || fail "the program wrote no text"
# A machine without a GPU has no device, but the backends load and say so.
inside rullama backends | tee "$work/backends.txt"
gpu_backends=$(sed -n 's/^RL_GPU_BACKEND(\([a-z_0-9]*\),.*/\1/p' "$source/backends/gpu_backends.def")
for backend in cpu $gpu_backends; do
  grep -q "^$backend: loaded (.*/rullama/librullama_backend_$backend.so" "$work/backends.txt" ||
    fail "the backend $backend is not loaded"
done
inside man -P cat rullama-run >"$work/manual.txt"
grep -q -e '--predict' "$work/manual.txt" || fail "man rullama-run does not show --predict"
# shellcheck disable=SC2016  # the inner bash expands
inside bash -c 'source /usr/share/bash-completion/bash_completion && _completion_loader rullama
  COMP_LINE="rullama run --backend v" COMP_POINT=23 COMP_WORDS=(rullama run --backend v) COMP_CWORD=3
  _rullama rullama && [[ ${COMPREPLY[*]} == vulkan ]]' || fail "bash does not complete 'vulkan'"

step "the library"
cp -r "$source/examples/cpp" "$root/tmp/cpp"
inside cmake -S /tmp/cpp -B /tmp/build >"$work/example.log"
inside cmake --build /tmp/build
text=$(inside /tmp/build/chat $share/models/tiny-e2b-Q4_K_M.gguf "Who is the prince?")
echo "$text"
[[ -n $text ]] || fail "the example wrote no text"
# shellcheck disable=SC2016  # the inner shell expands
inside sh -c 'c++ -std=c++20 /tmp/cpp/chat.cc $(pkg-config --cflags --libs rullama) -o /tmp/chat'
[[ $(inside /tmp/chat $share/models/tiny-e2b-Q4_K_M.gguf "Who is the prince?") == "$text" ]] ||
  fail "built with pkg-config the example writes something else"

step "a new backend"
inside sh -ec 'cd /tmp && rullama new-backend mine && cd mine && cmake -B build && cmake --build build &&
  ctest --test-dir build --output-on-failure'

step "remove and purge"
inside apt-get remove -q -y "${names[@]}"
if inside which rullama; then fail "the program is still there"; fi
# apt does not know packages that left no configuration; dpkg says so and continues.
inside dpkg --purge "${names[@]}"
list_files >"$work/after.txt"
# Caches of the loader and of man change, files do not.
if ! diff "$work/before.txt" "$work/after.txt"; then
  fail "these files came (>) or went (<)"
fi
for name in "${names[@]}"; do
  if inside dpkg-query --show "$name" 2>/dev/null; then fail "dpkg still knows $name"; fi
done
step "passed: ${names[*]}"
