// The backends of this project by name, for tests that run on each of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace rullama {

struct GpuBackend {
  const char* name;
  bool drafts_keep_bits;  // backends/gpu_backends.def
  const char* forms;      // likewise

  // The options of each form.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> Forms() const {
    std::vector<std::pair<std::string, std::string>> options;
    std::istringstream words(forms);
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      options.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    }
    return options;
  }
};

// The GPU backends of this project with a driver in software; or those that the variable
// RULLAMA_TEST_GPUS names, separated by blanks: one that needs a card, or one of another project.
inline const std::vector<GpuBackend>& GpuBackends() {
  static const std::vector<GpuBackend> with_software_drivers = {
#define RL_GPU_BACKEND(name, drafts_keep_bits, forms) {#name, drafts_keep_bits, forms},
#include "backends/gpu_backends.def"
  };
  static const char* const chosen = std::getenv("RULLAMA_TEST_GPUS");
  static std::istringstream words(chosen ? chosen : "");
  static const std::vector<std::string> names(std::istream_iterator<std::string>(words), {});
  static const std::vector<GpuBackend> named = [] {
    std::vector<GpuBackend> backends;
    for (const std::string& name : names) backends.push_back({name.c_str(), false, ""});
    return backends;
  }();
  return chosen ? named : with_software_drivers;
}

inline std::vector<const char*> GpuBackendNames() {
  std::vector<const char*> names;
  for (const GpuBackend& backend : GpuBackends()) names.push_back(backend.name);
  return names;
}

// The cpu backend and these.
inline std::vector<const char*> BackendNames() {
  std::vector<const char*> names = GpuBackendNames();
  names.insert(names.begin(), "cpu");
  return names;
}

// Drivers in software take long to compile kernels: what need not run on each backend runs on every
// second one, from number `first` on. CMake's EVEN and ODD are those from 0 and from 1 on.
template <typename T>
std::vector<T> EverySecond(const std::vector<T>& all, size_t first) {
  std::vector<T> some;
  for (size_t i = first; i < all.size(); i += 2) some.push_back(all[i]);
  return some;
}

// Names cases whose parameter is the name of a backend.
inline const auto kBackendName = [](const auto& test) { return std::string(test.param); };

}  // namespace rullama
