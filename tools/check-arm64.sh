#!/bin/bash
# Builds for ARM on an x86-64 machine and tests under emulation (qemu-user-static).
#
#   tools/check-arm64.sh                 the kernels of the cpu plugin, each level on the least
#                                        processor that has it
#   tools/check-arm64.sh --conformance   that, and with each level every op of the plugin against the
#                                        float64 reference
set -euo pipefail
cd "$(dirname "$0")/.."

conformance=0
case "${1:-}" in
  "") ;;
  --conformance) conformance=1 ;;
  *) echo "usage: tools/check-arm64.sh [--conformance]" >&2; exit 2 ;;
esac

emulate() { qemu-aarch64-static -L build/arm64-sysroot -cpu "$@"; }

# Waits for the jobs; fails if one of them did.
all_passed() {
  local failed=0 job
  for job in $(jobs -p); do wait "$job" || failed=1; done
  return "$failed"
}

# check_kernels PROCESSOR LEVEL...: the processor has exactly these levels, in the order of the
# alphabet, and the tests of the last one pass.
check_kernels() {
  local processor=$1 test=build/arm64/bin/cpu_kernels_test
  shift
  local found
  found=$(emulate "$processor" "$test" --gtest_list_tests |
    sed -n 's|^  [A-Za-z0-9]*/\(neon[a-z0-9]*\) .*|\1|p' | sort -u | xargs)
  if [[ $found != "$*" ]]; then
    echo "on $processor the kernels find the levels '$found', expected '$*'" >&2
    return 1
  fi
  emulate "$processor" "$test" --gtest_brief=1 --gtest_filter="*/${!#}"
}

tools/arm64-sysroot.sh
cmake --preset arm64
cmake --build --preset arm64 --target cpu_kernels_test
check_kernels cortex-a72 neon &
check_kernels cortex-a76 neon neondotprod &
check_kernels max neon neondotprod neoni8mm &
all_passed

if [[ $conformance == 0 ]]; then exit 0; fi
tools/arm64-sysroot.sh --host
cmake --preset arm64-host
cmake --build --preset arm64-host --target rullama-conformance rullama_backend_cpu
for level in neon neon-dotprod neon-i8mm; do
  emulate max build/arm64-host/bin/rullama-conformance --timeout 300 \
    --plugin build/arm64-host/lib/rullama/librullama_backend_cpu.so \
    --manifest backends/cpu/conformance.json --plugin-option "isa=$level"
done
