#include "backends/cuda/api.h"

#include <dlfcn.h>

namespace rullama::cuda {
namespace {

rl_code CodeOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return RL_OUT_OF_MEMORY;
    // After a fault of a kernel no call on the context succeeds any more.
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED:
      return RL_DEVICE_LOST;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return RL_UNAVAILABLE;
    default:
      return RL_INTERNAL;
  }
}

template <typename Function>
bool Find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

}  // namespace

std::string LoadApi(Api& api, const char* name) {
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return std::string("no NVIDIA driver is installed: its library ") + name +
           " was not found; install the driver of your GPU, version " + kOldestRelease +
           " or later (Debian: nvidia-driver)";
  }
  const char* missing = nullptr;
#define RL_CU(Name, symbol) \
  if (!Find(library, symbol, api.Name)) missing = symbol;
#include "backends/cuda/functions.def"
  if (missing == nullptr) return {};
  return std::string("the NVIDIA driver is too old: its library ") + name + " has no " + missing +
         "; needed is version " + kOldestRelease + " or later";
}

std::string NameOf(const Api& api, CUresult result) {
  const char* name = nullptr;
  if (api.GetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "CUDA error";
  return std::string(name) + " (" + std::to_string(static_cast<int>(result)) + ")";
}

void Check(const Api& api, CUresult result, std::string_view call) {
  if (result == CUDA_SUCCESS) return;
  throw sdk::Error(CodeOf(result), std::string(call) + ": " + NameOf(api, result), RL_NO_OP,
                   static_cast<int>(result));
}

}  // namespace rullama::cuda
