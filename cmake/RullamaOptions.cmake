# Build options and the flags every target of this project shares.
option(RULLAMA_TESTS "Build the tests" ON)
option(RULLAMA_HOST "Build the program and its libraries; else the cpu plugin and its tests alone" ON)
option(RULLAMA_BENCHMARKS "Build the Google Benchmark programs in bench/" OFF)
option(RULLAMA_PYTHON "Build the Python package in the build tree, and its tests; not with sanitizers" OFF)
option(RULLAMA_WERROR "Treat warnings as errors" OFF)
option(RULLAMA_VERIFY_PASSES "Verify the graph after every pass, also in optimised builds" OFF)
option(RULLAMA_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
set(RULLAMA_SANITIZE "" CACHE STRING "Sanitizers for every target, e.g. address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Plugins resolve nothing from the host, and the host exports nothing to them.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(RULLAMA_CCACHE ccache)
if(RULLAMA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The cache takes compilations with precompiled headers only if it may trust the headers' contents.
  set(CMAKE_C_COMPILER_LAUNCHER ${RULLAMA_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${RULLAMA_CCACHE})
endif()

add_library(rullama_flags INTERFACE)
target_compile_options(rullama_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  # Results must not depend on which expressions the compiler chose to contract.
  -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 sees overlapping copies and writes out of bounds in inlined std::string and std::vector code
  # that has neither (gcc bugs 105329, 105651, 105562); clang and the sanitizers watch instead.
  target_compile_options(rullama_flags INTERFACE
    -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-maybe-uninitialized)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(rullama_flags INTERFACE
    -Wreserved-identifier -Wreserved-macro-identifier)
endif()
if(RULLAMA_WERROR)
  target_compile_options(rullama_flags INTERFACE -Werror)
endif()
if(RULLAMA_VERIFY_PASSES)
  target_compile_definitions(rullama_flags INTERFACE RULLAMA_VERIFY_PASSES=1)
endif()
if(RULLAMA_SANITIZE)
  add_compile_options(-fsanitize=${RULLAMA_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${RULLAMA_SANITIZE})
endif()
# Tests and commands call much and compute little. Optimising the macros of GoogleTest and the
# headers of CLI11 would take most of a build, above all with sanitizers.
if(RULLAMA_SANITIZE)
  set(RULLAMA_GLUE_FLAGS -O0)
else()
  set(RULLAMA_GLUE_FLAGS -O1)
endif()
# Optimising the checks of sanitizers takes two thirds of a compilation. Only what tests keep busy is
# worth that; with fuzzers everything.
set(RULLAMA_UNOPTIMISED)
if(RULLAMA_SANITIZE AND NOT RULLAMA_FUZZ)
  set(RULLAMA_UNOPTIMISED -O0)
endif()
if(RULLAMA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
