#!/bin/bash
# Runs both commands of README.md as a newcomer does: in a fresh Debian 12 with nothing but its base, on a copy of
# the committed sources, without a compiler cache. Prints seconds by the clock and of processors for each.
#
#   tools/check-readme.sh WORK_DIR [first|second|ci]
#
# WORK_DIR gets the system while the script runs (WORK_DIR/root) and the output of the commands. Needs root, the
# network and debootstrap. A folder `shared` next to the source tree is copied, too. `ci` runs .ci/run there
# in place of the commands.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/stages.sh
source tools/fresh-system.sh

if [[ $# -lt 1 || $# -gt 2 || ! ${2:-first} =~ ^(first|second|ci)$ ]]; then
  echo "usage: tools/check-readme.sh WORK_DIR [first|second|ci]" >&2
  exit 2
fi
require_fresh_system
mkdir -p "$1"
work=$(cd "$1" && pwd)
readonly work root=$work/root
readonly only=${2:-}

# The lines of the code block of README.md that runs this program; a block is one command.
command_of_readme() { sed -n "/^## Two commands/,/^## /{/^${1//\//\\/} /p}" README.md | sed -n "$2p"; }

trap 'remove_fresh_system "$root"' EXIT
make_fresh_system "$root" "$work/debootstrap.log"
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
trap 'remove_fresh_system "$root"; print_stages' EXIT
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
