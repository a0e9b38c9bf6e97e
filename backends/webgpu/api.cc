#include "backends/webgpu/api.h"

#include <dlfcn.h>

#include <cstdlib>

namespace rullama::webgpu {
namespace {

template <typename Function>
bool Find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

// "29.0.1.1", of a byte each.
std::string VersionText(uint32_t version) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) {
    text += (text.empty() ? "" : ".") + std::to_string((version >> shift) & 0xFF);
  }
  return text;
}

std::string HowToInstall() {
  return "install version " + std::to_string(kMajorVersion) +
         ", which the package wgpu of Python has, in wgpu/resources, and name its file in " +
         kLibraryVariable;
}

}  // namespace

std::string LibraryName() {
  const char* named = std::getenv(kLibraryVariable);
  return named == nullptr || *named == '\0' ? kLibrary : named;
}

std::string LoadApi(Api& api, const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return "the library of wgpu-native, " + name + ", was not found; " + HowToInstall();
  }
  const char* missing = nullptr;
#define RL_WGPU(Name) \
  if (!Find(library, "wgpu" #Name, api.Name)) missing = "wgpu" #Name;
#include "backends/webgpu/functions.def"
  if (missing != nullptr) {
    return "the library of wgpu-native, " + name + ", has no " + missing + "; " + HowToInstall();
  }
  const uint32_t version = api.GetVersion();
  if (version >> 24 == kMajorVersion) return {};
  return "the library of wgpu-native, " + name + ", has version " + VersionText(version) + "; " +
         HowToInstall();
}

}  // namespace rullama::webgpu
