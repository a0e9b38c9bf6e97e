# Sourced by tools/check-readme.sh and tests/packages/in_chroot.sh: a fresh Debian 12 in a folder. Needs root, the
# network and debootstrap.
#
#   require_fresh_system [TOOL...]   ends the script with an error without root, debootstrap or one of the tools
#   make_fresh_system ROOT LOG       makes it, and mounts what programs expect of this machine in it; debootstrap
#                                    writes to LOG
#   remove_fresh_system ROOT         unmounts and removes it; returns at once if there is none

require_fresh_system() {
  local tool
  for tool in debootstrap "$@"; do
    if ! command -v "$tool" >/dev/null; then
      echo "there is no $tool: tools/install-deps.sh --all installs it" >&2
      exit 1
    fi
  done
  if [[ $(id -u) -ne 0 ]]; then
    echo "debootstrap and chroot need root" >&2
    exit 1
  fi
}

make_fresh_system() {
  local system=$1
  remove_fresh_system "$system"
  debootstrap --variant=minbase bookworm "$system" http://deb.debian.org/debian >"$2"
  cp -L /etc/resolv.conf /etc/hosts "$system/etc/"
  mount -t proc proc "$system/proc"
  mount -t sysfs -o ro sys "$system/sys"
  mount --bind /dev "$system/dev"
  mount --bind /dev/pts "$system/dev/pts"
  mount --bind /dev/shm "$system/dev/shm"
}

# Everything is unmounted first: the folders of this machine must not be removed with the system.
remove_fresh_system() {
  local system=$1 mount
  for mount in dev/pts dev/shm dev proc sys; do
    if mountpoint -q "$system/$mount"; then umount "$system/$mount"; fi
    if mountpoint -q "$system/$mount"; then
      echo "$system/$mount is still mounted, so $system stays" >&2
      return
    fi
  done
  rm -rf --one-file-system "$system"
}
