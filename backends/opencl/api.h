// OpenCL's functions, loaded at run time so that the plugin needs no loader to be opened; its
// errors as exceptions of the SDK, its objects as owners.
#pragma once

// Set before any header of OpenCL: types and names of 3.0. Only functions of 1.2 are called.
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <rullama/sdk/backend.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace rullama::opencl {

// Null until loaded. Tests put functions of their own in place of some.
struct Api {
#define RL_CL(Name) decltype(&::cl##Name) Name = nullptr;
#include "backends/opencl/functions.def"
};

// Opens the installable client driver loader, libOpenCL.so.1, which stays open. Returns an empty
// text, or why there is none.
std::string LoadApi(Api& api);

// Name of a result: "CL_OUT_OF_RESOURCES (-5)".
std::string NameOf(cl_int result);

// Throws sdk::Error unless the call succeeded: RL_OUT_OF_MEMORY, RL_DEVICE_LOST, RL_UNAVAILABLE or
// RL_INTERNAL, with the driver's code.
void Check(cl_int result, std::string_view call);

// A text that ends with a zero: query(room, text, &size). Empty if there is none.
template <typename Query>
std::string TextFrom(const Query& query) {
  size_t size = 0;
  if (query(0, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  if (query(size, text.data(), nullptr) != CL_SUCCESS) return {};
  text.resize(std::min(text.size(), text.find('\0')));
  return text;
}

// An object of OpenCL's, released when its owner goes.
template <typename Handle>
struct Release {
  cl_int(CL_API_CALL* release)(Handle) = nullptr;
  void operator()(Handle handle) const { release(handle); }
};
template <typename Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Release<Handle>>;

template <typename Handle>
Owned<Handle> Own(Handle handle, cl_int(CL_API_CALL* release)(Handle)) {
  return Owned<Handle>(handle, Release<Handle>{release});
}

}  // namespace rullama::opencl
