# Sets RULLAMA_HAS_CUDA to whether the CUDA backend is built, as RULLAMA_CUDA asks for it: ON, OFF, or AUTO where a CUDA
# toolkit is found, but not with sanitizers, which would watch the toolkit, and not for another processor.
set(RULLAMA_CUDA AUTO CACHE STRING "Build the backend cuda: AUTO (where a CUDA toolkit is found), ON or OFF")
set_property(CACHE RULLAMA_CUDA PROPERTY STRINGS AUTO ON OFF)
# One number is code for sm_90a, as the driver loads it. Packages have code for all generations and, with -virtual, what
# the driver compiles for later ones; other builds have code for one, which is what takes time.
set(architectures 90a)
if(RULLAMA_PACKAGES)
  set(architectures 80 86 89 90a 100 120 80-virtual)
endif()
set(RULLAMA_CUDA_ARCHITECTURES "${architectures}" CACHE STRING
  "Compute capabilities for which the backend cuda has code: 80;86;89;90a;100;120;80-virtual")
set(oldest 12.4)
set(RULLAMA_HAS_CUDA OFF)
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
