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

// The oldest driver that runs what the toolkit of this build makes, and what is used here (CUDA
// 12.4): code needs a driver of the toolkit's major version, PTX one of its version.
inline constexpr int kOldestForCode = CUDA_VERSION < 13000 ? 12040 : CUDA_VERSION / 1000 * 1000;
inline constexpr int kOldestForPtx = CUDA_VERSION;
// The release of NVIDIA's driver that has kOldestForCode. CMakeLists.txt has it for packages.
inline constexpr const char* kOldestRelease = CUDA_VERSION < 13000 ? "550" : "580";

inline constexpr const char* kDriverLibrary = "libcuda.so.1";
// Opens the library of the driver, which stays open. Returns an empty text, or why there is none.
std::string LoadApi(Api& api, const char* library = kDriverLibrary);

// Name of a result: "CUDA_ERROR_OUT_OF_MEMORY (2)".
std::string NameOf(const Api& api, CUresult result);

// Throws sdk::Error unless the call succeeded: RL_OUT_OF_MEMORY, RL_DEVICE_LOST, RL_UNAVAILABLE or
// RL_INTERNAL, with the driver's code.
void Check(const Api& api, CUresult result, std::string_view call);

}  // namespace rullama::cuda
