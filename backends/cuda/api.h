// The functions of CUDA's driver, loaded at run time so that the plugin needs no driver to be
// opened; its errors as exceptions of the SDK.
#pragma once

#include <cuda.h>
#include <rullama/sdk/backend.h>

#include <string>
#include <string_view>

namespace rullama::cuda {

// Null until loaded. Tests put functions of their own in their places.
struct Api {
#define RL_CU(Name, symbol) decltype(&::cu##Name) Name = nullptr;
#include "backends/cuda/functions.def"
};

inline constexpr const char* kDriverLibrary = "libcuda.so.1";
// Opens the library of the driver, which stays open. Returns an empty text, or why there is none.
std::string LoadApi(Api& api, const char* library = kDriverLibrary);

// Name of a result: "CUDA_ERROR_OUT_OF_MEMORY (2)".
std::string NameOf(const Api& api, CUresult result);

// Throws sdk::Error unless the call succeeded: RL_OUT_OF_MEMORY, RL_DEVICE_LOST, RL_UNAVAILABLE or
// RL_INTERNAL, with the driver's code.
void Check(const Api& api, CUresult result, std::string_view call);

}  // namespace rullama::cuda
