#!/bin/bash
# Builds the images of Containerfile from a Debian 12 that debootstrap makes, without a registry, asks the server in
# them, and starts compose.yaml. Needs root, the network for packages of Debian and for podman-compose, and what
# tools/install-deps.sh --all installs; not part of CI.
#
#   tests/containers/check.sh [--packages FOLDER] WORK_DIR
#
# WORK_DIR gets the images and, while the script runs, their containers. With --packages the *.deb of that folder are
# installed and nothing is compiled. Otherwise $CMAKE_OPTIONS is passed to cmake, and $CCACHE_DIR is the compiler cache.
# The image with CUDA is built if FOLDER has its package, or without --packages if the machine has a toolkit ($CUDA_PATH
# or /usr/local/cuda). Images are tried in a chroot, and compose.yaml in containers of podman.
set -euo pipefail

source=$(cd "$(dirname "$0")/../.." && pwd)
source "$source/tools/fresh-system.sh"
read_packages_and_work tests/containers/check.sh "$@"
require_fresh_system buildah curl podman runc
# A folder of the source tree of this run alone, within what .dockerignore lets through.
readonly packages=$source/build/container-packages/check-$$
readonly port=11435 key=sk-local
readonly model=/usr/share/rullama/models/tiny-e2b-Q4_K_M.gguf

# Layers of images are overlays where the kernel makes them in WORK_DIR, else copies.
driver=vfs
mkdir -p "$work"/probe/{lower,upper,work,merged}
if mount -t overlay overlay "$work/probe/merged" \
  -o "lowerdir=$work/probe/lower,upperdir=$work/probe/upper,workdir=$work/probe/work" 2>/dev/null; then
  umount "$work/probe/merged"
  driver=overlay
fi
rm -rf "$work/probe"
# Images and containers of this script alone.
images() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver "$driver" "$@"; }
# A program with podman's settings for those.
with_podman_settings() { CONTAINERS_STORAGE_CONF=$work/storage.conf CONTAINERS_CONF=$work/containers.conf "$@"; }
server=
# Containers in a chroot have the processes of this machine, so the server's own number is in the volume.
stop_server() {
  if [[ -z $server ]]; then return; fi
  kill "$(<"$work/models/pid")" 2>/dev/null || true
  wait "$server" || true
  server=
}
clean() {
  local mount
  stop_server
  # The containers of compose_test.py, if it was interrupted.
  if [[ -e $work/containers.conf ]]; then with_podman_settings podman rm --all --force --time 0 >/dev/null || true; fi
  images rm --all >/dev/null || true
  images rmi --all --force >/dev/null || true
  # What a build that was interrupted has left.
  while read -r _ mount _; do
    if [[ $mount == "$work/storage/"* ]]; then umount "$mount" || true; fi
  done </proc/mounts
  rm -rf --one-file-system "$work/storage" "$work/run" "$work/base" "$packages"
}
trap clean EXIT

step "base"
if [[ ! -e $work/base.tar ]]; then
  rm -rf --one-file-system "$work/base"
  make_base_system "$work/base" "$work/debootstrap.log"
  tar -C "$work/base" -cf "$work/base.tar.part" .
  mv "$work/base.tar.part" "$work/base.tar"
  rm -rf --one-file-system "$work/base"
fi
base=$(images from scratch)
images add -q "$base" "$work/base.tar" / >/dev/null
images commit -q "$base" localhost/debian:bookworm >/dev/null
images rm "$base" >/dev/null

arguments=(--build-arg BASE=localhost/debian:bookworm)
targets=(cpu vulkan)
toolkit=${CUDA_PATH:-/usr/local/cuda}
if [[ -n $folder ]]; then
  mkdir -p "$packages"
  cp "$folder"/*.deb "$packages/"
  arguments+=(--build-arg "PACKAGES=${packages#"$source"/}")
  if compgen -G "$packages/rullama-backend-cuda_*.deb" >/dev/null; then targets+=(cuda); fi
else
  cache=${CCACHE_DIR:-$work/ccache}
  mkdir -p "$cache"
  arguments+=(--volume "$cache:/ccache")
  cmake_options=${CMAKE_OPTIONS:-}
  # Mounted, as an image with a toolkit comes from a registry. Code for one card and few types of weights is enough to
  # see that the image is made; all of it takes half an hour.
  if [[ -e $toolkit/lib64/libnvrtc.so ]]; then
    targets+=(cuda)
    arguments+=(--volume "$(readlink -f "$toolkit"):/usr/local/cuda:ro")
    cmake_options+=" -DRULLAMA_CUDA_ARCHITECTURES=90a -DRULLAMA_CUDA_FORMS=few"
  fi
  arguments+=(--build-arg "CMAKE_OPTIONS=$cmake_options")
fi
for target in "${targets[@]}"; do
  step "build $target"
  (cd "$source" && images build --isolation chroot --network host --pull=never --format docker --layers=true \
    "${arguments[@]}" -f Containerfile --target "$target" -t "localhost/rullama:$target" .) >"$work/$target.log" 2>&1 ||
    { tail -n 30 "$work/$target.log" >&2; fail "the image $target is not built, see $work/$target.log"; }
done

step "what the image says"
description=$(images inspect --type image localhost/rullama:cpu)
# The value of a Python expression of the image's configuration; of a list a line for each item.
said() {
  python3 -c "import json, sys
config = json.load(sys.stdin)['Docker']['config']
value = $1
print(*(value if isinstance(value, (list, dict)) else [value]), sep='\n')" <<<"$description"
}
[[ $(said "config['User']") == 10001 ]] || fail "the user is $(said "config['User']"), expected 10001"
[[ $(said "config['Volumes']") == /models ]] || fail "the volumes are $(said "config['Volumes']")"
mapfile -t command < <(said "config['Entrypoint'] + config['Cmd']")
mapfile -t health < <(said "config['Healthcheck']['Test'][1:]")
[[ ${#health[@]} -gt 0 ]] || fail "there is no health check"

step "a container without a key"
# A working container of an image, without the image's volume: in a chroot that would hide the folder that is mounted
# there.
container_of() {
  local name
  name=$(images from "localhost/rullama:$1")
  images config --volume /models- "$name"
  echo "$name"
}
container=$(container_of cpu)
mkdir -p "$work/models"
chown 10001:10001 "$work/models"
inside() {
  images run --isolation chroot --network host --volume "$work/models:/models" "${options[@]}" "$container" -- "$@"
}
options=()
if inside "${command[@]}" -m "$model" 2>"$work/refused.log"; then fail "the server needs no key"; fi
grep -q 'server.no_key' "$work/refused.log" || fail "it ends with: $(<"$work/refused.log")"

step "the server"
options=(--env "RULLAMA_API_KEY=$key")
url=http://127.0.0.1:$port
if curl -sS -o /dev/null "$url/health" 2>/dev/null; then fail "another server listens at $url"; fi
rm -f "$work/models/pid"
# shellcheck disable=SC2016  # the shell in the container expands
inside sh -c 'echo $$ >/models/pid; exec "$@"' sh "${command[@]}" -m "$model" --slots 4 >"$work/server.log" 2>&1 &
server=$!
for ((i = 0; i < 300; ++i)); do
  if curl -fsS -o /dev/null "$url/health" 2>/dev/null; then break; fi
  kill -0 "$server" 2>/dev/null || fail "the server ended: $(tail -n 3 "$work/server.log")"
  sleep 0.2
done
options=()
inside "${health[@]}" || fail "the health check fails"
[[ $(inside id -u) == 10001 ]] || fail "programs do not run as the user 10001"
inside touch /models/written || fail "the volume cannot be written to"
[[ $(stat -c %u "$work/models/written") == 10001 ]] || fail "the volume's file belongs to another user"
if inside touch /usr/share/rullama/written 2>/dev/null; then fail "the user can change the program's files"; fi
code=$(curl -sS -o /dev/null -w '%{http_code}' "$url/v1/models")
[[ $code == 401 ]] || fail "without a key the answer is $code, expected 401"
ask() { curl -fsS -H "Authorization: Bearer $key" -H 'Content-Type: application/json' "$@"; }
ask "$url/v1/models" | grep -q tiny-e2b || fail "the model is not listed"
question='{"model": "tiny-e2b-Q4_K_M", "max_tokens": 8, "messages": [{"role": "user", "content": "Who is the prince?"}]'
ask "$url/v1/chat/completions" -d "$question}" | grep -q '"assistant"' || fail "no answer"
ask "$url/v1/chat/completions" -d "$question, \"stream\": true}" | grep -q '^data: \[DONE\]' || fail "no stream"

suite=$source/../shared/clients/run.sh
if [[ -e $suite ]]; then
  step "client libraries"
  API_KEY=$key SUITES=1 CLIENTS_VENV=${CLIENTS_VENV:-$work/clients} bash "$suite" "$url" -m "native or openai" \
    test_native.py test_openai_chat.py test_openai_stream.py
fi
stop_server

step "vulkan"
container=$(container_of vulkan)
inside rullama backends | tee "$work/backends.txt"
grep -q '^vulkan: loaded' "$work/backends.txt" || fail "the backend vulkan is not loaded"
grep -qi llvmpipe "$work/backends.txt" || fail "Mesa's driver for processors is not found"
# A software driver has to be asked for by its number.
text=$(inside rullama run -m "$model" --backend vulkan --device 0 --raw -p "The prince" -n 4 --greedy -q)
[[ -n $text ]] || fail "there is no text from vulkan"

if [[ " ${targets[*]} " == *" cuda "* ]]; then
  step "cuda"
  container=$(container_of cuda)
  # The driver is of the machine that has the card: without one the backend is there, and says what it lacks.
  if inside rullama run -m "$model" --backend cuda --raw -p "The prince" -n 4 -q 2>"$work/cuda.txt"; then
    fail "cuda runs, but this test brings no driver"
  fi
  cat "$work/cuda.txt"
  grep -q 'libcuda.so.1' "$work/cuda.txt" || fail "cuda does not name the driver's library"
else
  step "there is no image with cuda: no toolkit here, or no package of it in FOLDER"
fi

step "compose.yaml"
if [[ ! -e $work/compose-venv/ready ]]; then
  python3 -m venv --clear "$work/compose-venv"
  "$work/compose-venv/bin/pip" install -q --disable-pip-version-check -r "$source/tests/containers/requirements.txt"
  touch "$work/compose-venv/ready"
fi
printf '[storage]\ndriver = "%s"\ngraphroot = "%s"\nrunroot = "%s"\n' "$driver" "$work/storage" "$work/run" \
  >"$work/storage.conf"
# Containers without systemd, with cgroups of either version, and where root may not raise limits.
cat >"$work/containers.conf" <<CONFIGURATION
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=8192:8192"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[network]
network_config_dir = "$work/networks"
CONFIGURATION
images tag localhost/rullama:cpu localhost/rullama:latest
PATH=$work/compose-venv/bin:$PATH with_podman_settings \
  python3 -B "$source/tests/containers/compose_test.py" --source "$source" --image localhost/rullama:cpu \
  --compose "$work/compose-venv/bin/podman-compose" "$work"
step "passed: ${targets[*]}, compose.yaml"
