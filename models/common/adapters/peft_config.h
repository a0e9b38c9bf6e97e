// adapter_config.json of PEFT and of MLX: what it says about the factors of an adapter. Fields that
// would change numbers and are not understood are errors, as are unknown fields with a value.
// Internal to models/common/adapters. Thread safety: value types.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace rullama::adapters {

struct PeftConfig {
  using Patterns = std::vector<std::pair<std::string, double>>;

  std::optional<double> mlx_scale;  // MLX: the factor itself; the members below are PEFT's
  double rank = 0;
  double alpha = 0;
  bool rs_lora = false;
  Patterns rank_pattern;
  Patterns alpha_pattern;
  std::vector<std::string> targets;  // suffixes of modules; empty if it is a regular expression
  std::set<int64_t> layers;          // of the adapter; empty: all

  // Errors: io.* of reading, adapter.config, adapter.unsupported.
  static Result<PeftConfig> Read(const std::string& path);
  static Result<PeftConfig> Parse(std::string_view text);

  // The factor of a module, whose name has no base_model.model in front. Error adapter.rank if the
  // tensors have another rank than the configuration says.
  [[nodiscard]] Result<double> ScaleOf(std::string_view module, int64_t rank) const;
};

}  // namespace rullama::adapters
