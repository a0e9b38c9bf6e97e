# rullama_library(NAME [COMPUTES|BYTEWISE|GLUE] SOURCES a.cc ... DEPS x ...)   a static library of the host side.
#                                                          COMPUTES: it has loops over elements, which
#                                                          -O3 makes faster; BYTEWISE: it works on each
#                                                          byte of texts or files; GLUE: it calls much
#                                                          and computes little.
#                                                          RullamaOptions.cmake has the flags
# rullama_test(NAME SOURCES a_test.cc ... DEPS x ... [LABELS ...] [COMPUTES] [SLOW_SANITIZED])
#                                                          one GoogleTest program, run as one CTest test per
#                                                          program. COMPUTES: as above; SLOW_SANITIZED: with
#                                                          sanitizers only tools/check-all.sh builds and runs it
# rullama_fuzzer(NAME SOURCES a_fuzz.cc DEPS x CORPUS dir)  a libFuzzer target (RULLAMA_FUZZ); builds with
#                                                          sanitizers replay its corpus as a test
# rullama_list_fuzzers()                                   writes their names and corpora to fuzzers.txt

# rullama_long_tests(NAME ...)                             tests that the presets of CI leave out for their time
#                                                          (label "long"); tools/check-all.sh runs all
# rullama_long_cases(NAME PATTERN ...)                     the cases of a GoogleTest program that the test NAME
#                                                          leaves out, and the test NAME_long runs
# Both come after the other properties of the tests.

function(rullama_library name)
  cmake_parse_arguments(ARG "COMPUTES;BYTEWISE;GLUE" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE rullama_flags)
  if(ARG_GLUE)
    set(flags ${RULLAMA_GLUE_LIBRARY_FLAGS})
  elseif(ARG_BYTEWISE)
    set(flags ${RULLAMA_BYTEWISE_FLAGS})
  elseif(ARG_COMPUTES)
    set(flags ${RULLAMA_LOOP_FLAGS})
  else()
    set(flags ${RULLAMA_PLAIN_FLAGS})
  endif()
  target_compile_options(${name} PRIVATE ${flags})
  if(RULLAMA_COMMON_HEADERS AND flags STREQUAL "-O0")
    rullama_read_once(rullama_library_headers ${RULLAMA_COMMON_HEADERS} FLAGS ${flags} -fPIC)
    target_precompile_headers(${name} REUSE_FROM rullama_library_headers)
  endif()
endfunction()

# rullama_read_once(NAME <header> ... FLAGS ... [DEPS ...])   precompiles headers that take longer to read than most
# sources to compile, for all targets with these flags that name NAME. Headers whose text depends on a target's macros
# (fmt, spdlog) cannot be among them.
function(rullama_read_once name)
  cmake_parse_arguments(ARG "" "" "FLAGS;DEPS" ${ARGN})
  if(TARGET ${name})
    return()
  endif()
  set(source ${CMAKE_BINARY_DIR}/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Its headers are precompiled for other targets.\n")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} rullama_flags)
  target_compile_options(${name} PRIVATE ${ARG_FLAGS})
  target_precompile_headers(${name} PRIVATE ${ARG_UNPARSED_ARGUMENTS})
endfunction()

function(rullama_test name)
  if(NOT RULLAMA_TESTS AND NOT name IN_LIST RULLAMA_NODE_TESTS)
    return()
  endif()
  rullama_read_once(rullama_test_headers <gmock/gmock.h> <gtest/gtest.h> ${RULLAMA_COMMON_HEADERS}
    FLAGS ${RULLAMA_GLUE_FLAGS} $<$<BOOL:${CMAKE_POSITION_INDEPENDENT_CODE}>:-fPIE>
    DEPS GTest::gmock GTest::gtest_main)
  cmake_parse_arguments(ARG "COMPUTES;SLOW_SANITIZED" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main rullama_flags)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  # At -O1 gcc 12 sees std::string written out of bounds (see RullamaOptions.cmake).
  target_compile_options(${name} PRIVATE
    ${RULLAMA_GLUE_FLAGS} $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>)
  target_link_options(${name} PRIVATE ${RULLAMA_TEST_LINK_FLAGS})
  if(ARG_COMPUTES)
    target_compile_options(${name} PRIVATE -O1)
  else()
    target_precompile_headers(${name} REUSE_FROM rullama_test_headers)
  endif()
  target_compile_definitions(${name} PRIVATE
    RULLAMA_SOURCE_DIR="${PROJECT_SOURCE_DIR}" RULLAMA_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(EMSCRIPTEN)
    target_link_options(${name} PRIVATE
      -Wno-pthreads-mem-growth -sALLOW_MEMORY_GROWTH -sEXIT_RUNTIME -sNODERAWFS -sPROXY_TO_PTHREAD -sPTHREAD_POOL_SIZE=4)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if("unit" IN_LIST ARG_LABELS)
    if(NOT TARGET unit_tests)
      add_custom_target(unit_tests)
    endif()
    add_dependencies(unit_tests ${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    PROCESSOR_AFFINITY ON)
  if(ARG_SLOW_SANITIZED AND RULLAMA_SANITIZE AND RULLAMA_LIGHT)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    rullama_long_tests(${name})
  endif()
endfunction()

function(rullama_fuzzer name)
  if(NOT RULLAMA_TESTS OR NOT (RULLAMA_FUZZ OR RULLAMA_SANITIZE))
    return()
  endif()
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;DEPS" ${ARGN})
  if(RULLAMA_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_property(GLOBAL APPEND PROPERTY RULLAMA_FUZZERS "${name} ${ARG_CORPUS}")
  else()
    add_executable(${name} ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc)
    add_test(NAME ${name}_corpus COMMAND ${name} ${ARG_CORPUS})
    set_tests_properties(${name}_corpus PROPERTIES LABELS "fuzz")
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} rullama_flags)
endfunction()

function(rullama_long_tests)
  foreach(name IN LISTS ARGN)
    get_property(labels TEST ${name} PROPERTY LABELS)
    set_property(TEST ${name} PROPERTY LABELS "${labels};long")
  endforeach()
endfunction()

function(rullama_long_cases name)
  if(NOT TEST ${name})
    return()
  endif()
  list(JOIN ARGN ":" patterns)
  add_test(NAME ${name}_long COMMAND ${name})
  foreach(property LABELS ENVIRONMENT PROCESSOR_AFFINITY)
    get_property(value TEST ${name} PROPERTY ${property})
    set_property(TEST ${name}_long PROPERTY ${property} "${value}")
  endforeach()
  set_tests_properties(${name}_long PROPERTIES TIMEOUT 1800)
  set_property(TEST ${name} PROPERTY ENVIRONMENT_MODIFICATION "GTEST_FILTER=set:-${patterns}")
  set_property(TEST ${name}_long PROPERTY ENVIRONMENT_MODIFICATION "GTEST_FILTER=set:${patterns}")
  rullama_long_tests(${name}_long)
endfunction()

# Read by tools/check-fuzz.sh.
function(rullama_list_fuzzers)
  if(RULLAMA_FUZZ)
    get_property(rows GLOBAL PROPERTY RULLAMA_FUZZERS)
    list(JOIN rows "\n" text)
    file(WRITE ${CMAKE_BINARY_DIR}/fuzzers.txt "${text}\n")
  endif()
endfunction()

# Pins each test of the current directory to the processors it asks for (PROCESSORS, one unless said
# otherwise): tests side by side then share no core, and their threads do not wait for one another.
function(rullama_pin_tests)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    set_tests_properties(${test} PROPERTIES PROCESSOR_AFFINITY ON)
  endforeach()
endfunction()
