# Sets RULLAMA_HAS_CUDA to whether the CUDA backend is built, as RULLAMA_CUDA asks for it: ON, OFF, or AUTO where a CUDA
# toolkit is found, but not with sanitizers, which would watch the toolkit, and not for another processor.
set(oldest 12.4)
# CMake 3.25.0 and 3.25.1, which Debian 12 has, end in an error with a toolkit that lacks libnvToolsExt, as the latest
# do: they set a property of its target without looking. Nothing links to this one.
if(CMAKE_VERSION VERSION_LESS 3.25.2 AND NOT TARGET CUDA::nvToolsExt)
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()
if(RULLAMA_CUDA STREQUAL "AUTO")
  if(NOT RULLAMA_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
    find_package(CUDAToolkit ${oldest} QUIET)
  endif()
elseif(RULLAMA_CUDA)
  find_package(CUDAToolkit ${oldest} REQUIRED)
endif()
if(RULLAMA_CUDA AND CUDAToolkit_FOUND AND TARGET CUDA::nvrtc)
  set(RULLAMA_HAS_CUDA ON)
elseif(RULLAMA_CUDA AND NOT RULLAMA_CUDA STREQUAL "AUTO")
  message(FATAL_ERROR "RULLAMA_CUDA is ON, but the CUDA toolkit in ${CUDAToolkit_LIBRARY_DIR} has no libnvrtc")
endif()

# One number is code for sm_90a, as the driver loads it. Packages have code for all generations and, with -virtual, what
# the driver compiles for later ones; other builds have code for one, which is what takes time. An empty value of the
# cache is the default, which follows the toolkit: 100 and 120 are known from 12.8 on.
set(RULLAMA_CUDA_ARCHITECTURES "" CACHE STRING
  "Compute capabilities for which the backend cuda has code: 80;86;89;90a;100;120;80-virtual; empty: the default")
set(RULLAMA_CUDA_CODE ${RULLAMA_CUDA_ARCHITECTURES})
if(NOT RULLAMA_HAS_CUDA)
  return()
endif()
if(NOT RULLAMA_CUDA_CODE)
  set(RULLAMA_CUDA_CODE 90a)
  if(RULLAMA_PACKAGES)
    set(RULLAMA_CUDA_CODE 80 86 89 90a)
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND RULLAMA_CUDA_CODE 100 120)
    endif()
    list(APPEND RULLAMA_CUDA_CODE 80-virtual)
  endif()
endif()
foreach(architecture IN LISTS RULLAMA_CUDA_CODE)
  string(REGEX MATCH "^[0-9]+" number "${architecture}")
  if(number GREATER_EQUAL 100 AND CUDAToolkit_VERSION VERSION_LESS 12.8)
    message(FATAL_ERROR "RULLAMA_CUDA_ARCHITECTURES has ${architecture}, which the CUDA toolkit ${CUDAToolkit_VERSION} "
      "does not know: use 12.8 or later, or leave it out")
  endif()
endforeach()
