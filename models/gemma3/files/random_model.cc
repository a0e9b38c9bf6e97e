#include "models/gemma3/files/random_model.h"

#include <fmt/format.h>

#include "core/base/check.h"
#include "models/common/files/random_tensors.h"
#include "models/gemma3/graph/weights.h"

namespace rullama {
namespace {

Gemma3Config DrawConfig(uint64_t seed) {
  SeededDraw draw(seed);
  Gemma3Config c;
  c.layers = draw.Int(2, 7);
  c.width = draw.Of<4>({32, 64, 96, 256});
  c.vocabulary = draw.Int(64, 300);
  c.context_length = 512;
  c.heads = draw.Of<3>({1, 2, 4});
  c.kv_heads = draw.Int(0, 1) == 0 ? 1 : c.heads;
  c.head_dim = draw.Of<3>({16, 32, 64});
  c.ffn_width = draw.Of<4>({32, 64, 96, 256});
  c.sliding_window = draw.Int(3, 20);
  c.pattern = draw.Int(2, 4);
  c.rope_scaling_global = draw.Int(0, 1) == 0 ? 1.0F : 8.0F;
  const Status valid = ValidateConfig(c);
  RL_CHECK(valid.has_value());
  return c;
}

}  // namespace

std::string RandomGemma3::Describe() const {
  return fmt::format(
      "seed {}: layers {}, width {}, heads {} and {}, window {}, global every {}, rope scaling {}, "
      "embedding {}",
      seed, config.layers, config.width, config.heads, config.kv_heads, config.sliding_window,
      config.pattern, config.rope_scaling_global, NameOf(weights.Find("token_embd.weight")->dtype));
}

RandomGemma3 MakeRandomGemma3(uint64_t seed) {
  RandomGemma3 model{.config = DrawConfig(seed), .weights = {}, .seed = seed};
  const bool quantised = (seed & 1) != 0;
  model.weights =
      ModelWeights::Synthetic(ExpectedTensors(model.config), [&](const TensorSpec& spec) {
        return DrawType(seed, spec.name, spec.dims.back(), quantised);
      });
  return model;
}

}  // namespace rullama
