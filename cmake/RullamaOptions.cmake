# Build options and the flags every target of this project shares.
option(RULLAMA_TESTS "Build the tests" ON)
option(RULLAMA_HOST "Build the program and its libraries; else the cpu plugin and its tests alone" ON)
option(RULLAMA_PROGRAM "Build the program, the server and downloads; else the libraries of the engine alone" ON)
option(RULLAMA_PLUGIN_FILES "Load backends from shared libraries; else there are the built-in ones alone" ON)
set(RULLAMA_BUILTIN_BACKENDS "" CACHE STRING "Backends that are linked into what uses the engine, e.g. cpu")
set(RULLAMA_NODE_TESTS "" CACHE STRING "With Emscripten and without RULLAMA_TESTS: unit tests that run in node")
option(RULLAMA_MEDIA_DECODERS "Read compressed pictures and sounds; else BMP and WAV alone" ON)
option(RULLAMA_GPU "Build the backends vulkan, opencl and cuda; the tests of the program need them" ON)
option(RULLAMA_BENCHMARKS "Build the Google Benchmark programs in bench/" OFF)
option(RULLAMA_PYTHON "Build the Python package in the build tree, and its tests; not with sanitizers" OFF)
option(RULLAMA_LIGHT "Optimise only what tests keep busy, which takes a third less time to build" OFF)
option(RULLAMA_QUICK "With RULLAMA_LIGHT: optimise libraries only where tests would take long" OFF)
option(RULLAMA_FEW_CPU_LEVELS "Build the kernels of the cpu plugin for two levels of instructions only" OFF)
option(RULLAMA_WERROR "Treat warnings as errors" OFF)
option(RULLAMA_VERIFY_PASSES "Verify the graph after every pass, also in optimised builds" OFF)
option(RULLAMA_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
set(RULLAMA_SANITIZE "" CACHE STRING "Sanitizers for every target, e.g. address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
if(NOT EMSCRIPTEN)  # where it means modules that are loaded later, whose calls take detours
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
endif()
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
  # Below this size, in KiB, the compiler does not look for memory that it can free: a tenth of its time, for
  # joined sources that take half of it anyway.
  target_compile_options(rullama_flags INTERFACE "SHELL:--param ggc-min-heapsize=1048576")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(rullama_flags INTERFACE
    -Wreserved-identifier -Wreserved-macro-identifier)
endif()
if(EMSCRIPTEN)
  # Sizes have 32 bits there, numbers of files and of the plugin ABI 64.
  target_compile_options(rullama_flags INTERFACE -Wshorten-64-to-32)
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
# How much is optimised: tests, commands and libraries that call much and compute little (GLUE), libraries without a
# word about it (PLAIN), and those that work on each byte (BYTEWISE). Optimising the macros of GoogleTest and the headers
# of CLI11 would take most of a build. With sanitizers, whose checks take two thirds of a compilation to optimise, only
# what tests keep busy is worth that; with fuzzers all libraries are.
set(RULLAMA_GLUE_FLAGS -O1)
set(RULLAMA_GLUE_LIBRARY_FLAGS $<$<CONFIG:Release>:-O1>)
set(RULLAMA_PLAIN_FLAGS $<$<CONFIG:Release>:-O2>)
set(RULLAMA_BYTEWISE_FLAGS $<$<CONFIG:Release>:-O2>)
set(RULLAMA_LOOP_FLAGS)
if(EMSCRIPTEN)
  # The optimiser of WebAssembly goes over all of it once more when the module is linked.
  set(RULLAMA_PLAIN_FLAGS -O1)
  set(RULLAMA_BYTEWISE_FLAGS -O1)
endif()
if(RULLAMA_LIGHT)
  set(RULLAMA_GLUE_FLAGS -O0)
  set(RULLAMA_GLUE_LIBRARY_FLAGS -O0)
  set(RULLAMA_PLAIN_FLAGS -O1)
  set(RULLAMA_BYTEWISE_FLAGS -O1)
endif()
# The tests next to the code call each library for a moment only: gcc's optimisation costs a sixth of their build and
# gains nothing. What is left is reading headers: those that most sources include are precompiled. The other presets do
# without, so that a source that forgets to include one of them fails there.
set(RULLAMA_COMMON_HEADERS)
if(RULLAMA_LIGHT AND RULLAMA_QUICK)
  set(RULLAMA_PLAIN_FLAGS -O0)
  set(RULLAMA_LOOP_FLAGS -O1)
  set(RULLAMA_COMMON_HEADERS <nlohmann/json.hpp> <tl/expected.hpp> <algorithm> <filesystem> <functional> <map> <ranges>)
endif()
if(RULLAMA_SANITIZE)
  set(RULLAMA_GLUE_FLAGS -O0)
  if(NOT RULLAMA_FUZZ)
    set(RULLAMA_GLUE_LIBRARY_FLAGS -O0)
    set(RULLAMA_PLAIN_FLAGS -O0)
  endif()
endif()
# Tests are linked by gold where the compiler has it, which takes half the time of ld. It warns of the sanitizers'
# symbols.
set(RULLAMA_TEST_LINK_FLAGS)
if(RULLAMA_LIGHT AND NOT RULLAMA_SANITIZE)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=gold RULLAMA_HAS_GOLD)
  if(RULLAMA_HAS_GOLD)
    set(RULLAMA_TEST_LINK_FLAGS -fuse-ld=gold)
  endif()
endif()
if(RULLAMA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
