# cmake -DNM=nm -DPLUGIN=file.so -P CheckPluginExports.cmake: fails unless the plugin defines exactly
# one dynamic symbol, its entry point.
execute_process(COMMAND ${NM} -D --defined-only --format=posix ${PLUGIN}
  OUTPUT_VARIABLE output RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${NM} failed on ${PLUGIN}: ${code}")
endif()
string(STRIP "${output}" output)
string(REPLACE "\n" ";" lines "${output}")
set(symbols)
foreach(line IN LISTS lines)
  string(REGEX REPLACE " .*" "" symbol "${line}")
  list(APPEND symbols ${symbol})
endforeach()
if(NOT symbols STREQUAL "rullama_plugin_query_v1")
  message(FATAL_ERROR "${PLUGIN} exports '${symbols}', expected only 'rullama_plugin_query_v1'")
endif()
