# rullama_conformance(NAME BACKEND [LONG] [QUICK] ENVIRONMENT x ... ARGS x ...)
#
# The tests conformance_NAME and conformance_NAME_long, of the plugin BACKEND or the reference: the first runs the cases
# of --quick, one for each op and type of weights, the other all (label "long": tools/check-all.sh). With QUICK or LONG
# only the first or the second of them.
function(rullama_conformance name backend)
  if(NOT RULLAMA_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "LONG;QUICK" "" "ENVIRONMENT;ARGS" ${ARGN})
  set(plugin $<TARGET_FILE:rullama_backend_${backend}>)
  set(manifest ${PROJECT_SOURCE_DIR}/backends/gpu/conformance.json)
  if(backend STREQUAL reference)
    set(plugin reference)
    set(manifest ${PROJECT_SOURCE_DIR}/core/reference/conformance.json)
  elseif(backend STREQUAL cpu)
    set(manifest ${PROJECT_SOURCE_DIR}/backends/cpu/conformance.json)
  endif()
  # A test whose kernels a software driver has to compile may take minutes.
  set(command rullama-conformance --plugin ${plugin} --manifest ${manifest} --timeout 300 ${ARG_ARGS})
  set(names)
  if(NOT ARG_LONG)
    add_test(NAME conformance_${name} COMMAND ${command} --quick)
    list(APPEND names conformance_${name})
  endif()
  if(NOT ARG_QUICK)
    add_test(NAME conformance_${name}_long COMMAND ${command})
    list(APPEND names conformance_${name}_long)
  endif()
  set_tests_properties(${names} PROPERTIES
    LABELS conformance TIMEOUT 1800 COST 100 PROCESSOR_AFFINITY ON ENVIRONMENT "${ARG_ENVIRONMENT}")
  if(NOT ARG_QUICK)
    rullama_long_tests(conformance_${name}_long)
  endif()
endfunction()

# rullama_ops_matrix_test(BACKEND ENVIRONMENT x ...)
#
# docs/ops.md ends with the section of each backend that this program prints:
#   rullama-conformance --plugin .../librullama_backend_cpu.so --matrix
function(rullama_ops_matrix_test backend)
  cmake_parse_arguments(ARG "" "" "ENVIRONMENT" ${ARGN})
  add_test(NAME ops_matrix_${backend}
    COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:rullama-conformance>
            -DPLUGIN=$<TARGET_FILE:rullama_backend_${backend}>
            -DPAGE=${PROJECT_SOURCE_DIR}/docs/ops.md
            -P ${PROJECT_SOURCE_DIR}/conformance/check_matrix.cmake)
  set_tests_properties(ops_matrix_${backend} PROPERTIES
    LABELS conformance PROCESSOR_AFFINITY ON ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()
