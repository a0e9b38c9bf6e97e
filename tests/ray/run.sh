#!/bin/bash
# run.sh SOURCE_DIR BUILD_DIR MARKERS: tests rullama.ray of a build tree with the packages of
# python/requirements-ray.txt, which it installs into .venv-ray at the root. MARKERS: those of pytest. Exit code 77: the
# packages are not installed, and no package index is reachable.
set -euo pipefail
source=$1 build=$2 markers=$3
venv=$source/.venv-ray requirements=$source/python/requirements-ray.txt

# The pip of .venv, for this environment.
pip() { "$source/.venv/bin/pip" --python "$venv/bin/python" "$@"; }

index_is_reachable() {
  local folder status=0
  folder=$(mktemp -d)
  pip download -q --no-deps -d "$folder" pytest >/dev/null 2>&1 || status=1
  rm -rf "$folder"
  return $status
}

if ! cmp -s "$requirements" "$venv/installed.txt"; then
  "$source/.venv/bin/python" -m venv --clear --without-pip "$venv"
  if ! pip install -q --no-compile --disable-pip-version-check -r "$requirements"; then
    if index_is_reachable; then
      echo "python/requirements-ray.txt cannot be installed" >&2
      exit 1
    fi
    echo "skipped: Ray is not installed, and the Python package index is unreachable" >&2
    exit 77
  fi
  cp "$requirements" "$venv/installed.txt"
fi

export PYTHONPATH=$build/python RULLAMA_PROGRAM=$build/bin/rullama
# Each process of Ray imports a thousand modules, which takes three times as long without their byte code. It is kept
# out of the sources.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$venv/pycache
export RAY_USAGE_STATS_ENABLED=0 RAY_DATA_DISABLE_PROGRESS_BARS=1
# Each process of Ray takes seconds of a processor to start; a machine of two cores needs few of them.
export RAY_prestart_worker_first_driver=0 RAY_enable_worker_prestart=0
# Workers would run at niceness 15, beside a busy process with a twentieth of its share.
export RAY_worker_niceness=0
# The controller of Ray Train looks at its workers every two seconds.
export RAY_TRAIN_HEALTH_CHECK_INTERVAL_S=0.2
export RAY_DATA_PARQUET_FOOTER_NUM_ACTORS=1 RAY_DATA_PARQUET_FOOTER_IO_CONCURRENCY=2
# Beside busy processes a process of Ray needs a minute to start. Ray gives the proxy of Serve 5 seconds, then kills it
# and fails, and has other such limits. Processes that end are noticed without them. Nor does Ray kill workers for the
# memory that other programs use.
export RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S=600 RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S=600
export RAY_worker_register_timeout_seconds=600 RAY_agent_register_timeout_ms=600000
export RAY_gcs_server_port_wait_time_s=600 RAY_gcs_server_request_timeout_seconds=600
export RAY_health_check_timeout_ms=600000 RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S=600
export RAY_memory_monitor_refresh_ms=0
cd "$source/tests/ray"
"$venv/bin/python" -m pytest -q -p no:cacheprovider -W ignore --show-capture=no -m "$markers"
