#!/bin/bash
# run_guide.sh GUIDE BUILD_DIR WORK_DIR: runs the `sh` blocks of a guide in one shell, in an empty folder, as
# its reader would. After the first block, which installs, there is no source tree and no build any more.
set -euo pipefail

guide=$1
export RULLAMA BUILD PREFIX
RULLAMA=$(cd "$(dirname "$guide")/.." && pwd)
BUILD=$2
work=$3
PREFIX=$work/prefix

rm -rf "$work"
mkdir -p "$work/empty"
script=$work/guide.sh
{
  echo 'set -euo pipefail'
  echo "set -v"
  awk '/^```sh$/ { inside = 1; next }
       /^```$/ { if (inside && !installed++) print "unset RULLAMA BUILD"; inside = 0 }
       inside' "$guide"
} >"$script"
if [[ $(grep -c . "$script") -lt 10 ]]; then
  echo "$guide has no sh blocks" >&2
  exit 1
fi
cd "$work/empty"
# The caller's settings for the program must not influence the test.
unset RULLAMA_PLUGIN_PATH
exec bash "$script"
