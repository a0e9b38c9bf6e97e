#!/bin/bash
# Runs both commands of README.md as a newcomer does: in a fresh Debian 12 with nothing but its base, on a copy of
# the committed sources, without a compiler cache. Prints seconds by the clock and of processors for each.
#
#   tools/check-readme.sh WORK_DIR [first|second|ci]
#
# WORK_DIR gets the system while the script runs (WORK_DIR/root) and the output of the commands. Needs root, the
# network and debootstrap. A folder `shared` beside the source tree lies beside the copy, too. `ci` runs .ci/run there
# in place of the commands.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/stages.sh

if [[ $# -lt 1 || $# -gt 2 || ! ${2:-first} =~ ^(first|second|ci)$ ]]; then
  echo "usage: tools/check-readme.sh WORK_DIR [first|second|ci]" >&2
  exit 2
fi
if ! command -v debootstrap >/dev/null; then
  echo "there is no debootstrap: apt-get install debootstrap" >&2
  exit 1
fi
if [[ $(id -u) -ne 0 ]]; then
  echo "debootstrap and chroot need root" >&2
  exit 1
fi
mkdir -p "$1"
work=$(cd "$1" && pwd)
readonly work root=$work/root
readonly only=${2:-}

# The lines of the code block of README.md that runs this program; a block is one command.
command_of_readme() { sed -n "/^## Two commands/,/^## /{/^${1//\//\\/} /p}" README.md | sed -n "$2p"; }

# `umount` first: the folders of this machine must not be removed with the system.
leave() {
  for mount in dev/pts dev/shm dev proc sys; do
    if mountpoint -q "$root/$mount"; then umount "$root/$mount"; fi
    if mountpoint -q "$root/$mount"; then
      echo "$root/$mount is still mounted, so $root stays" >&2
      return
    fi
  done
  rm -rf --one-file-system "$root"
}
leave
trap leave EXIT
debootstrap --variant=minbase bookworm "$root" http://deb.debian.org/debian >"$work/debootstrap.log"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sys "$root/sys"
mount --bind /dev "$root/dev"
mount --bind /dev/pts "$root/dev/pts"
mount --bind /dev/shm "$root/dev/shm"
mkdir "$root/home/rullama"
git clone -q . "$root/home/rullama/main"
if [[ -d ../shared ]]; then cp -r ../shared "$root/home/rullama/shared"; fi
# How pip reaches its index here.
variables=()
if [[ -n ${PIP_INDEX_URL:-} ]]; then variables+=("PIP_INDEX_URL=$PIP_INDEX_URL"); fi
if [[ -n ${PIP_CERT:-} ]]; then
  cp "$PIP_CERT" "$root/home/rullama/certificates.crt"
  variables+=(PIP_CERT=/home/rullama/certificates.crt)
fi

inside() {
  chroot "$root" env -i TERM=dumb HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    "${variables[@]}" bash -c "cd /home/rullama/main && $1" 2>&1 | tee "$work/$2.txt"
}
failed=0
trap 'leave; print_stages' EXIT
if [[ $only == ci ]]; then
  run_stage ".ci/run" inside .ci/run ci || failed=1
else
  number=0
  for name in first second; do
    number=$((number + 1))
    if [[ -n $only && $only != "$name" ]]; then continue; fi
    run_stage "$name command" inside "$(command_of_readme tools/install-deps.sh $number)" "$name" || failed=1
  done
fi
exit "$failed"
