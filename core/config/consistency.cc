#include "core/config/consistency.h"

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error_of.h"

namespace rullama {
namespace {

using Conflict = ErrorOf<ErrorKind::kUsage, "config.conflict">;

Status CheckHeads(const ArchitectureConfig& a) {
  if (a.heads && a.kv_heads) {
    for (const int64_t kv_heads : {a.kv_heads->sliding, a.kv_heads->global}) {
      if (*a.heads % kv_heads != 0) {
        return Conflict("architecture.heads ({}) is not a multiple of architecture.kv_heads ({})",
                        *a.heads, kv_heads);
      }
    }
  }
  if (a.head_dim) {
    for (const int64_t head_dim : {a.head_dim->sliding, a.head_dim->global}) {
      // Rotary embedding turns pairs of dims.
      if (head_dim % 2 != 0) {
        return Conflict("architecture.head_dim ({}) must be even", head_dim);
      }
    }
  }
  return OkStatus();
}

Status CheckSharing(const ArchitectureConfig& a) {
  if (!a.layers || !a.shared_kv_layers || *a.shared_kv_layers == 0) return OkStatus();
  if (*a.shared_kv_layers >= *a.layers) {
    return Conflict(
        "architecture.shared_kv_layers ({}) must be less than architecture.layers ({}): the first "
        "layers own the cache",
        *a.shared_kv_layers, *a.layers);
  }
  // The donors of both kinds are there once the owning layers hold one whole period.
  const int64_t owned = *a.layers - *a.shared_kv_layers;
  if (a.pattern && owned < *a.pattern) {
    return Conflict(
        "architecture.shared_kv_layers ({}) leaves {} layers with a cache, too few for one period "
        "of architecture.pattern ({}): shared layers need a sliding and a global donor",
        *a.shared_kv_layers, owned, *a.pattern);
  }
  return OkStatus();
}

Status CheckExperts(const ExpertsConfig& experts) {
  if (!experts.count || !experts.used || *experts.used <= *experts.count) return OkStatus();
  return Conflict("architecture.experts.used ({}) is more than architecture.experts.count ({})",
                  *experts.used, *experts.count);
}

Status CheckCanvas(const ArchitectureConfig& a) {
  if (!a.canvas_length || !a.context_length || *a.canvas_length <= *a.context_length) {
    return OkStatus();
  }
  return Conflict("architecture.canvas_length ({}) is longer than architecture.context_length ({})",
                  *a.canvas_length, *a.context_length);
}

Status CheckDiffusion(const DiffusionConfig& diffusion) {
  if (!diffusion.t_min || !diffusion.t_max || *diffusion.t_min <= *diffusion.t_max) {
    return OkStatus();
  }
  return Conflict("sampler.diffusion.t_min ({}) is above sampler.diffusion.t_max ({})",
                  *diffusion.t_min, *diffusion.t_max);
}

// Collects keys of the block that are needed and not given.
class MissingKeys {
 public:
  void Require(std::string_view key, bool given) {
    if (!given) keys_.push_back(fmt::format("architecture.{}", key));
  }
  [[nodiscard]] Status Report() const {
    if (keys_.empty()) return OkStatus();
    return MakeError(ErrorKind::kUsage, "config.missing_key",
                     "missing: {}; see configs/ for examples", fmt::join(keys_, ", "));
  }

 private:
  std::vector<std::string> keys_;
};

Status CheckDrafts(const DraftsConfig& drafts) {
  if (drafts.min <= drafts.max) return OkStatus();
  return Conflict("drafts.min ({}) is above drafts.max ({})", drafts.min, drafts.max);
}

}  // namespace

Status CheckConsistency(const Config& config) {
  const ArchitectureConfig& a = config.architecture;
  RL_RETURN_IF_ERROR(CheckHeads(a));
  RL_RETURN_IF_ERROR(CheckSharing(a));
  RL_RETURN_IF_ERROR(CheckExperts(a.experts));
  RL_RETURN_IF_ERROR(CheckCanvas(a));
  RL_RETURN_IF_ERROR(CheckDiffusion(config.sampler.diffusion));
  RL_RETURN_IF_ERROR(CheckDrafts(config.drafts));
  if (a.sliding_window && a.context_length && *a.sliding_window > *a.context_length) {
    return Conflict(
        "architecture.sliding_window ({}) is longer than architecture.context_length "
        "({})",
        *a.sliding_window, *a.context_length);
  }
  return OkStatus();
}

Status CheckArchitectureComplete(const ArchitectureConfig& a) {
  MissingKeys missing;
  missing.Require("layers", a.layers.has_value());
  missing.Require("width", a.width.has_value());
  missing.Require("heads", a.heads.has_value());
  missing.Require("kv_heads", a.kv_heads.has_value());
  missing.Require("head_dim", a.head_dim.has_value());
  missing.Require("ffn", a.ffn.has_value());
  missing.Require("sliding_window", a.sliding_window.has_value());
  missing.Require("pattern", a.pattern.has_value());
  missing.Require("vocabulary", a.vocabulary.has_value());
  missing.Require("context_length", a.context_length.has_value());
  return missing.Report();
}

Status CheckTowersComplete(const ArchitectureConfig& a) {
  MissingKeys missing;
  missing.Require("width", a.width.has_value());
  if (!a.audio.layers) missing.Require("vision.layers", a.vision.layers.has_value());
  if (a.vision.layers) missing.Require("vision.width", a.vision.width.has_value());
  if (a.vision.layers.value_or(0) > 0) {
    missing.Require("vision.heads", a.vision.heads.has_value());
    missing.Require("vision.ffn", a.vision.ffn.has_value());
  }
  if (a.audio.layers.value_or(0) > 0) {
    missing.Require("audio.width", a.audio.width.has_value());
    missing.Require("audio.heads", a.audio.heads.has_value());
    missing.Require("audio.ffn", a.audio.ffn.has_value());
  }
  return missing.Report();
}

}  // namespace rullama
