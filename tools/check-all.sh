#!/bin/bash
# Runs every check there is, one stage after the other, and ends with a table of results. .ci/run has the part that
# each change has to pass; this is run before a release, and for changes of what .ci/run leaves out.
#
#   tools/check-all.sh                the stages that have not passed on these sources yet
#   tools/check-all.sh --since REV    of these, the ones that the changes since the commit REV can have touched
#   tools/check-all.sh STAGE...       these stages, whether they have passed or not
#   tools/check-all.sh --list         prints the stages and what each does
#
# A stage that has passed leaves the sum of the files that it depends on, and its seconds, in build/check-all/STAGE. It
# is left out until one of these files changes: after an interruption or a failure the same command continues. Needs
# root, on Debian 12: packages are installed, and two stages make fresh systems. Exit status 1 if a stage failed; the
# others run all the same.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/stages.sh

readonly results=build/check-all

# Stage, files that it depends on (an extended regular expression of paths), and what it does. In the order in which
# they run.
readonly code='^(core|media|backends|models|samplers|engine|server|downloads|cli|python|conformance|tests|examples|bench|web)/'
readonly build_files='(CMakeLists.txt|^CMakePresets.json|^cmake/.*|^pyproject.toml)$'
readonly stages=(
  "packages ^tools/|requirements installs what the other stages need"
  "format . layout of sources and documents"
  "copies ^(core|media|backends|models|samplers|engine|server|downloads|cli|python|conformance|web)/|copies few places of product code share six lines"
  "tests $code|$build_files|^docs/|^README|^configs/ gcc: every test, every case of conformance on every software driver"
  "asan $code|$build_files every test that can run under AddressSanitizer and UndefinedBehaviorSanitizer"
  "tsan $code|$build_files|check-threads ThreadSanitizer over what has threads"
  "tidy $code|$build_files|^.clang-tidy|check-tidy clang-tidy over every source"
  "includes $code|$build_files|check-(includes|std) each source compiled by itself"
  "arm64 ^(core|backends/cpu|conformance)/|$build_files|arm64 the kernels for ARM, and every op with each, under emulation"
  "wasm ^(core|media|models|samplers|engine|backends/cpu|web|configs|tests/data)/|^README.md|$build_files|wasm|emscripten the engine as WebAssembly: its text in node and Chromium, its kernels in node"
  "mutants ^(core|backends/cpu|conformance)/|mutants every fault of tools/mutants.txt is caught by conformance"
  "coverage $code|$build_files|coverage the tests of .ci/run execute nine tenths of the lines that all tests do"
  "fuzz $code|$build_files|check-fuzz each fuzzer for a minute"
  "mutations $code|$build_files thousands of damaged model files"
  "ray $code|$build_files rullama.ray with drivers and workers that are killed"
  "soak ^(server|engine|core|models|samplers|backends)/|$build_files a server with many clients, watched for growth"
  "wheel $code|$build_files the Python package, installed into a new environment and tested there"
  "cpu-only $code|$build_files|cpu-only the program without GPU backends, in a folder with blanks in its name"
  "debian $code|$build_files|^docs/|^configs/ Debian packages: built, installed, used, removed in a fresh system"
  "container $code|$build_files|^Containerfile|^compose.yaml|^.dockerignore|^tools/|^configs/ images of containers: built from a fresh system, run, asked by clients, and compose.yaml"
  "readme . both commands of README.md in a fresh system"
)

stage_packages() { tools/install-deps.sh --all; }
stage_format() { tools/check-format.sh; }
stage_copies() { tools/check-copies.py; }
build_ci() { cmake --preset ci && cmake --build --preset ci; }
stage_tests() { build_ci && ctest --preset all; }
stage_asan() { cmake --preset asan-all && cmake --build --preset asan-all && ctest --preset asan-all; }
stage_tsan() { cmake --preset tsan && tools/check-threads.sh; }
stage_tidy() { cmake --preset asan-all && cmake --build --preset asan-all && tools/check-tidy.sh build/asan-all; }
stage_includes() { cmake --preset clang -DRULLAMA_BENCHMARKS=ON && tools/check-includes.sh build/clang; }
stage_arm64() { tools/check-arm64.sh --conformance; }
stage_wasm() { tools/check-wasm.sh; }
stage_mutants() { build_ci && tools/check-mutants.sh build/ci; }
stage_coverage() { tools/check-coverage.py; }
stage_fuzz() { tools/check-fuzz.sh 60; }
stage_mutations() { build_ci && tests/mutations/mutate.py --program build/ci/bin/rullama --count 13000; }
stage_ray() { build_ci && tests/ray/run.sh "$PWD" "$PWD/build/ci" nightly; }
stage_soak() {
  build_ci && tests/server/soak.py --program build/ci/bin/rullama --model tests/data/tiny-e2b-Q4_K_M.gguf
}
stage_wheel() { tests/python/install_test.sh build/check-wheel; }
stage_cpu-only() { tools/check-cpu-only.sh build/check-cpu-only; }
# Kernels of CUDA for all architectures and types take a core some three hours. None runs here.
stage_debian() {
  CMAKE_OPTIONS="-DRULLAMA_CUDA_ARCHITECTURES=90a -DRULLAMA_CUDA_FORMS=few" tests/packages/in_chroot.sh build/check-debian
}
stage_container() { tests/containers/check.sh build/check-container; }
stage_readme() { tools/check-readme.sh build/check-readme; }

# The sum of the sources whose paths match, with changes that are not committed and new files. Files that cannot be
# read (one that was removed, a link to a folder) count as missing.
sum_of_sources() {
  git ls-files -z --cached --others --exclude-standard | grep -zE "$1" | sort -zu |
    { xargs -0 sha256sum 2>/dev/null || true; } | sha256sum
}

# The paths that changed since a commit, new files and changes that are not committed included.
changed_since() {
  git diff --name-only "$1" --
  git ls-files --others --exclude-standard
}

names=()
for row in "${stages[@]}"; do names+=("${row%% *}"); done
chosen=()
changed=
force=
case "${1:-}" in
  --list)
    for row in "${stages[@]}"; do
      read -r name _ what <<<"$row"
      printf '%-10s %s\n' "$name" "$what"
    done
    exit 0 ;;
  --since)
    if [[ $# -ne 2 ]] || ! git rev-parse -q --verify "$2^{commit}" >/dev/null; then
      echo "--since needs a commit, found '${2:-}'" >&2
      exit 2
    fi
    changed=$(changed_since "$2") ;;
  "") ;;
  -*) echo "usage: tools/check-all.sh [--list | --since REV | STAGE...]" >&2; exit 2 ;;
  *) chosen=("$@") force=1 ;;
esac
for name in "${chosen[@]}"; do
  if [[ " ${names[*]} " != *" $name "* ]]; then
    echo "there is no stage '$name'; tools/check-all.sh --list prints them" >&2
    exit 2
  fi
done

mkdir -p "$results"
failed=0
trap print_stages EXIT
for row in "${stages[@]}"; do
  read -r name paths _ <<<"$row"
  if [[ ${#chosen[@]} -gt 0 && " ${chosen[*]} " != *" $name "* ]]; then continue; fi
  sum=$(sum_of_sources "$paths")
  if [[ -z $force && -e $results/$name && $(head -1 "$results/$name") == "$sum" ]]; then
    skip_stage "$name" "passed before" $(tail -1 "$results/$name")
  elif [[ -z $force && -n $changed ]] && ! grep -qE "$paths" <<<"$changed"; then
    skip_stage "$name" untouched
  elif run_stage "$name" bash -euo pipefail -c "$(declare -f build_ci "stage_$name"); stage_$name"; then
    printf '%s\n%s\n' "$sum" "$(seconds_of_last_stage)" >"$results/$name"
  else
    failed=1
  fi
done
exit "$failed"
