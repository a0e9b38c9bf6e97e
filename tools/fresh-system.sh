# Sourced by tools/check-readme.sh, tests/packages/in_chroot.sh and tests/containers/check.sh: a fresh Debian 12 in a
# folder, and what tests in it share. Needs root, the network and debootstrap.
#
#   require_fresh_system [TOOL...]   ends the script with an error without root, debootstrap or one of the tools
#   make_fresh_system ROOT LOG       makes it, and mounts what programs expect of this machine in it; debootstrap
#                                    writes to LOG
#   make_base_system ROOT LOG        only its base, as debootstrap makes it
#   remove_fresh_system ROOT         unmounts and removes it; returns at once if there is none
#   read_packages_and_work NAME [--packages FOLDER] WORK_DIR   of the arguments of the test NAME: sets `folder` to the
#                                    absolute path of FOLDER, or to nothing, and makes WORK_DIR, whose path is `work`
#   step TEXT...                     prints the heading of a part of a test
#   fail TEXT...                     ends a test with an error

read_packages_and_work() {
  local name=$1 option=
  shift
  folder=
  if [[ ${1:-} == --packages && $# -ge 2 ]]; then
    option=$2
    shift 2
  fi
  if [[ $# -ne 1 || $1 == --packages || -n $option && ! -d $option ]]; then
    echo "usage: $name [--packages FOLDER] WORK_DIR" >&2
    exit 2
  fi
  if [[ -n $option ]]; then folder=$(cd "$option" && pwd); fi
  mkdir -p "$1"
  work=$(cd "$1" && pwd)
}

step() { echo "==== $*"; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

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

make_base_system() { debootstrap --variant=minbase bookworm "$1" http://deb.debian.org/debian >"$2"; }

make_fresh_system() {
  local system=$1
  remove_fresh_system "$system"
  make_base_system "$system" "$2"
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
