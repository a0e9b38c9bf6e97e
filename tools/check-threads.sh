#!/bin/bash
# Runs what has threads under ThreadSanitizer (preset tsan): the thread pool, plugins that are called from several
# threads, servers of tools, steps in flight, and the two tests that share const objects.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly tests=(cpu_thread_pool_test plugin_test plugin_unit_test server_tools_test step_pipeline_test tokenizer_test)
cmake --preset tsan
cmake --build --preset tsan --target "${tests[@]}"
ctest --preset tsan -R "^($(IFS='|'; echo "${tests[*]}"))$"
