// Makes a model of the `architecture` block of a configuration, or compares one with it. Thread
// safety: value types.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/config/consistency.h"

namespace rullama {

// Numbers of a YAML file in range of the schema; only f32 is stored.
inline float Narrow(const std::optional<double>& value, float otherwise) {
  return value ? static_cast<float>(*value) : otherwise;
}

// A model's check of its numbers as an error of the configuration: model.architecture (kUsage).
template <typename T>
Result<T> AsArchitectureError(Result<T> config) {
  if (config) return config;
  Error error = std::move(config).error();
  error.kind = ErrorKind::kUsage;
  error.id = "model.architecture";
  return tl::unexpected(std::move(error).WithContext("architecture"));
}

// The numbers of a family from a block that names all of them. Errors: those of
// CheckArchitectureComplete, of `check_family` (parts that the family lacks), of CheckConsistency,
// and of `build` as model.architecture.
template <typename T>
Result<T> ConfigFromArchitecture(const ArchitectureConfig& architecture,
                                 Status (*check_family)(const ArchitectureConfig&),
                                 Result<T> (*build)(const ArchitectureConfig&)) {
  RL_RETURN_IF_ERROR(CheckArchitectureComplete(architecture));
  RL_RETURN_IF_ERROR(check_family(architecture));
  Config whole;
  whole.architecture = architecture;
  RL_RETURN_IF_ERROR(CheckConsistency(whole));
  return AsArchitectureError(build(architecture));
}

// Collects differences between what the configuration expects and what the model has.
class ArchitectureDifferences {
 public:
  template <typename T>
  void Compare(std::string_view key, const std::optional<T>& expected, T found) {
    if (expected && *expected != found) Add(key, *expected, found);
  }
  // Both sides are f32 at heart: YAML's 0.000001 is the file's 9.99999997e-07.
  void CompareReal(std::string_view key, const std::optional<double>& expected, double found) {
    constexpr double kTolerance = 1e-6;
    if (expected && std::abs(*expected - found) > kTolerance * std::abs(*expected)) {
      Add(key, *expected, found);
    }
  }
  // Several numbers of the configuration, of which the model has one; the first that differs
  // counts.
  void CompareEach(std::string_view key, std::initializer_list<int64_t> expected, int64_t found) {
    for (const int64_t value : expected) {
      if (value != found) return Add(key, value, found);
    }
  }
  template <typename T>
  void Add(std::string_view key, const T& expected, const T& found) {
    text_ += fmt::format("{}architecture.{} is {} in the configuration, {} in the model",
                         text_.empty() ? "" : "; ", key, expected, found);
  }
  // Error model.architecture_mismatch (kUsage) lists every difference there is.
  [[nodiscard]] Status Report() const {
    if (text_.empty()) return OkStatus();
    return MakeError(ErrorKind::kUsage, "model.architecture_mismatch",
                     "the model is not the one the configuration describes: {}; correct the "
                     "`architecture` block or leave it out",
                     text_);
  }

 private:
  std::string text_;
};

}  // namespace rullama
