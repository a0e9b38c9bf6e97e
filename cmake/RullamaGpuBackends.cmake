# rullama_add_gpu_backend(NAME [CARD] API name LOADER package SOURCES a.cc ... [DEPS x ...] [ENVIRONMENT A=B ...]
#                         [EXACT_ENVIRONMENT A=B ...] [CONFORMANCE_ENVIRONMENT A=B ...])
#                                                          the plugin of a GPU backend of this project
#                                                          (rullama_add_backend) and the tests that all of them have:
#                                                          conformance, and the table of its ops. CARD: no driver in
#                                                          software runs it, so it has none of these tests. API and LOADER: for
#                                                          its package, the name of the API for people, and the package
#                                                          of the library that is opened at run time. ENVIRONMENT: of all
#                                                          tests that may use it. EXACT_ENVIRONMENT: besides, where
#                                                          its driver's optimiser would change results.
#                                                          CONFORMANCE_ENVIRONMENT: besides, of conformance
# rullama_gpu_backends(RESULT)                             their names: the rows of backends/gpu_backends.def
# rullama_card_backends(RESULT)                            likewise, of those that need a card and are built: the
#                                                          FindToolkit.cmake of NAME sets RULLAMA_HAS_NAME
# rullama_tests_of_gpu_backends(TEST ... [EXACT])          tests that use them: each is built after them, has their
#                                                          environment, and with sanitizers leaves out cases that have
#                                                          the name of one in theirs, since drivers are not built for
#                                                          sanitizers
# rullama_gpu_cases(RESULT [ALL p ...] [EVEN p ...] [ODD p ...])
#                                                          patterns of cases, for each backend with its name in place
#                                                          of @: for all, or every second one, from 0 or 1 on

function(rullama_rows_of_gpu_backends result macro)
  set(file ${PROJECT_SOURCE_DIR}/backends/gpu_backends.def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} rows REGEX "^${macro}\\(")
  list(TRANSFORM rows REPLACE "^${macro}\\(([a-z_0-9]+)[,)].*" "\\1")
  set(${result} ${rows} PARENT_SCOPE)
endfunction()

function(rullama_gpu_backends result)
  rullama_rows_of_gpu_backends(rows RL_GPU_BACKEND)
  set(${result} ${rows} PARENT_SCOPE)
endfunction()

function(rullama_card_backends result)
  rullama_rows_of_gpu_backends(rows RL_CARD_BACKEND)
  set(built)
  foreach(name IN LISTS rows)
    string(TOUPPER ${name} upper)
    if(RULLAMA_HAS_${upper})
      list(APPEND built ${name})
    endif()
  endforeach()
  set(${result} ${built} PARENT_SCOPE)
endfunction()

function(rullama_add_gpu_backend name)
  cmake_parse_arguments(ARG "CARD" "API;LOADER" "SOURCES;DEPS;ENVIRONMENT;EXACT_ENVIRONMENT;CONFORMANCE_ENVIRONMENT" ${ARGN})
  rullama_gpu_backends(names)
  rullama_card_backends(cards)
  if(NOT name IN_LIST names AND NOT name IN_LIST cards)
    message(FATAL_ERROR "the GPU backend '${name}' has no row in backends/gpu_backends.def, which lists: ${names} ${cards}")
  endif()
  rullama_add_backend(${name} SOURCES ${ARG_SOURCES} DEPS rullama_gpu ${ARG_DEPS})
  target_include_directories(rullama_backend_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(rullama_backend_${name} PRIVATE RULLAMA_VERSION="${PROJECT_VERSION}")
  set_property(GLOBAL PROPERTY RULLAMA_GPU_API_${name} "${ARG_API}")
  set_property(GLOBAL PROPERTY RULLAMA_GPU_LOADER_${name} "${ARG_LOADER}")
  set_property(GLOBAL APPEND PROPERTY RULLAMA_GPU_ENVIRONMENT ${ARG_ENVIRONMENT})
  set_property(GLOBAL APPEND PROPERTY RULLAMA_GPU_EXACT_ENVIRONMENT ${ARG_EXACT_ENVIRONMENT})
  if(ARG_CARD OR NOT RULLAMA_TESTS OR RULLAMA_SANITIZE)
    return()
  endif()
  # These tests run on the first device found: in CI that is a driver for CPUs, an ordinary package. Sanitizers would
  # watch the driver more than the backend. The run of all cases is two tests, so that they compile side by side: ops
  # whose names begin with m, most of them products, and all others. With an empty cache the driver's compiler takes
  # most of the time.
  set(names_with_m "Op.m*")
  # Types whose kernels are those of iq1_m, iq2_s, iq3_s or tq2_0 with another table: a driver compiles each of them
  # anew, which takes PoCL some seven seconds.
  set(skip_alike --skip "Op.*/iq1_s*" --skip "Op.*/iq2_x*" --skip "Op.*/iq3_xxs*" --skip "Op.*/tq1_0*")
  set(environment ${ARG_ENVIRONMENT} ${ARG_CONFORMANCE_ENVIRONMENT})
  rullama_conformance(${name} ${name} QUICK ARGS --skip "*_wide" ${skip_alike}
    ENVIRONMENT ${environment} ${ARG_EXACT_ENVIRONMENT})
  rullama_conformance(${name} ${name} LONG ARGS --skip "*_wide" --skip "${names_with_m}" ENVIRONMENT ${environment})
  rullama_conformance(${name}_m ${name} LONG ARGS --skip "*_wide" --filter "${names_with_m}"
    ENVIRONMENT ${environment})
  # Matrices of weights that one allocation cannot have: all but the smallest, here.
  set(filter_gather "Op.gather_rows*")
  set(filter_gated "Op.geglu_linear*")
  set(filter_products "Op.matmul/q5_k_k*")
  foreach(part gather gated products)
    rullama_conformance(${name}_pieces_${part} ${name}
      ARGS --plugin-option weight_piece=20000 --filter ${filter_${part}} --skip "*_wide" ${skip_alike}
           --skip "Op.*/iq1_m*" --skip "Op.*/iq2_s*" --skip "Op.*/tq2_0*"
      ENVIRONMENT ${ARG_ENVIRONMENT})
  endforeach()
  rullama_ops_matrix_test(${name} ENVIRONMENT ${ARG_ENVIRONMENT})
endfunction()

function(rullama_tests_of_gpu_backends)
  cmake_parse_arguments(ARG "EXACT" "" "" ${ARGN})
  rullama_gpu_backends(names)
  get_property(environment GLOBAL PROPERTY RULLAMA_GPU_ENVIRONMENT)
  if(ARG_EXACT)
    get_property(exact GLOBAL PROPERTY RULLAMA_GPU_EXACT_ENVIRONMENT)
    list(APPEND environment ${exact})
  endif()
  if(RULLAMA_SANITIZE)
    list(TRANSFORM names REPLACE "(.+)" "*\\1*" OUTPUT_VARIABLE patterns)
    list(JOIN patterns ":" patterns)
    set(environment "GTEST_FILTER=-${patterns}")
  endif()
  foreach(test IN LISTS ARG_UNPARSED_ARGUMENTS)
    foreach(name IN LISTS names)
      add_dependencies(${test} rullama_backend_${name})
    endforeach()
    set_property(TEST ${test} PROPERTY ENVIRONMENT ${environment})
  endforeach()
endfunction()

function(rullama_gpu_cases result)
  cmake_parse_arguments(ARG "" "" "ALL;EVEN;ODD" ${ARGN})
  rullama_gpu_backends(names)
  set(patterns)
  set(group EVEN)
  foreach(name IN LISTS names)
    foreach(pattern IN LISTS ARG_ALL ARG_${group})
      string(REPLACE "@" ${name} pattern "${pattern}")
      list(APPEND patterns "${pattern}")
    endforeach()
    if(group STREQUAL EVEN)
      set(group ODD)
    else()
      set(group EVEN)
    endif()
  endforeach()
  set(${result} ${patterns} PARENT_SCOPE)
endfunction()
