# Sets RULLAMA_HAS_WEBGPU to whether the WebGPU backend is built, as RULLAMA_WEBGPU asks for it: ON, OFF, or AUTO where
# the headers of wgpu-native are found, but not with sanitizers, which would watch that library, not for another
# processor, and not for packages, since no package of Debian has the library.
if(NOT RULLAMA_WEBGPU)
  return()
endif()
set(automatic OFF)
if(RULLAMA_WEBGPU STREQUAL "AUTO")
  set(automatic ON)
  if(RULLAMA_SANITIZE OR RULLAMA_PACKAGES OR CMAKE_CROSSCOMPILING)
    return()
  endif()
endif()

# The package of Python that tools/install-deps.sh installs has the headers and, beside them, the library.
file(GLOB hints ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/wgpu/resources)
find_path(RULLAMA_WEBGPU_HEADERS wgpu.h HINTS ${hints} DOC "The headers of wgpu-native")
if(RULLAMA_WEBGPU_HEADERS)
  set(RULLAMA_HAS_WEBGPU ON)
elseif(NOT automatic)
  message(FATAL_ERROR
    "RULLAMA_WEBGPU is ON, but the headers of wgpu-native were not found. Install the package wgpu of Python "
    "(tools/install-deps.sh), or name the folder of wgpu.h and webgpu.h in RULLAMA_WEBGPU_HEADERS")
endif()
