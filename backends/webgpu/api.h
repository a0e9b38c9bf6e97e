// The functions of WebGPU, of the library wgpu-native, which is loaded at run time, so that the
// plugin needs no library to be opened.
#pragma once

#include <webgpu.h>
#include <wgpu.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace rullama::webgpu {

// Null until loaded. Tests put functions of their own in their places.
struct Api {
#define RL_WGPU(Name) decltype(&::wgpu##Name) Name = nullptr;
#include "backends/webgpu/functions.def"
};

// The release of wgpu-native whose headers these are: structs differ from one to the next.
inline constexpr uint32_t kMajorVersion = 29;
// The library of that release, unless the variable names another one.
inline constexpr const char* kLibrary = "libwgpu_native.so";
inline constexpr const char* kLibraryVariable = "RULLAMA_WEBGPU_LIBRARY";

// The path in the variable, or the usual name.
std::string LibraryName();
// Opens the library, which stays open. Returns an empty text, or why there is none.
std::string LoadApi(Api& api, const std::string& library = LibraryName());

inline std::string TextOf(WGPUStringView view) {
  if (view.data == nullptr) return {};
  return view.length == WGPU_STRLEN ? std::string(view.data) : std::string(view.data, view.length);
}
inline WGPUStringView ViewOf(std::string_view text) { return {text.data(), text.size()}; }

// An object of WebGPU's, released when its owner goes.
template <typename Handle>
struct Release {
  void (*release)(Handle) = nullptr;
  void operator()(Handle handle) const { release(handle); }
};
template <typename Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Release<Handle>>;

template <typename Handle>
Owned<Handle> Own(Handle handle, void (*release)(Handle)) {
  return Owned<Handle>(handle, Release<Handle>{release});
}

}  // namespace rullama::webgpu
