#include "backends/opencl/api.h"

#include <dlfcn.h>

namespace rullama::opencl {
namespace {

constexpr const char* kLoader = "libOpenCL.so.1";

rl_code CodeOf(cl_int result) {
  switch (result) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
      return RL_OUT_OF_MEMORY;
    // After a fault of a kernel no call on the context succeeds any more.
    case CL_OUT_OF_RESOURCES:
    case CL_INVALID_COMMAND_QUEUE:
    case CL_DEVICE_NOT_AVAILABLE:
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST:
      return RL_DEVICE_LOST;
    case CL_PLATFORM_NOT_FOUND_KHR:
    case CL_DEVICE_NOT_FOUND:
    case CL_COMPILER_NOT_AVAILABLE:
      return RL_UNAVAILABLE;
    default:
      return RL_INTERNAL;
  }
}

const char* TextOf(cl_int result) {
  switch (result) {
#define RL_NAME(name) \
  case name:          \
    return #name;
    RL_NAME(CL_BUILD_PROGRAM_FAILURE)
    RL_NAME(CL_COMPILER_NOT_AVAILABLE)
    RL_NAME(CL_DEVICE_NOT_AVAILABLE)
    RL_NAME(CL_DEVICE_NOT_FOUND)
    RL_NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    RL_NAME(CL_INVALID_BINARY)
    RL_NAME(CL_INVALID_BUFFER_SIZE)
    RL_NAME(CL_INVALID_COMMAND_QUEUE)
    RL_NAME(CL_INVALID_KERNEL_ARGS)
    RL_NAME(CL_INVALID_VALUE)
    RL_NAME(CL_INVALID_WORK_GROUP_SIZE)
    RL_NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    RL_NAME(CL_OUT_OF_HOST_MEMORY)
    RL_NAME(CL_OUT_OF_RESOURCES)
    RL_NAME(CL_PLATFORM_NOT_FOUND_KHR)
#undef RL_NAME
    default:
      return "OpenCL error";
  }
}

template <typename Function>
bool Find(void* loader, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(loader, name));
  return function != nullptr;
}

}  // namespace

std::string LoadApi(Api& api) {
  void* loader = dlopen(kLoader, RTLD_NOW | RTLD_LOCAL);
  if (loader == nullptr) {
    return std::string("the OpenCL loader ") + kLoader +
           " is not installed; install it (Debian: ocl-icd-libopencl1) and the driver of your "
           "device";
  }
  const char* missing = nullptr;
#define RL_CL(Name) \
  if (!Find(loader, "cl" #Name, api.Name)) missing = "cl" #Name;
#include "backends/opencl/functions.def"
  if (missing == nullptr) return {};
  return std::string("the OpenCL loader ") + kLoader + " has no " + missing +
         ", needed is OpenCL 1.2";
}

std::string NameOf(cl_int result) {
  return std::string(TextOf(result)) + " (" + std::to_string(result) + ")";
}

void Check(cl_int result, std::string_view call) {
  if (result == CL_SUCCESS) return;
  throw sdk::Error(CodeOf(result), std::string(call) + ": " + NameOf(result), RL_NO_OP, result);
}

}  // namespace rullama::opencl
