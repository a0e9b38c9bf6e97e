#include "models/gemma4/towers/tower_cost.h"

#include "models/common/towers/tower_cost.h"
#include "models/gemma4/towers/audio_graph.h"
#include "models/gemma4/towers/tower_file.h"

namespace rullama::gemma4 {

TowerFacts FactsOf(const VisionTower& tower) {
  const VisionConfig& c = tower.config;
  return CountTensors(tower.weights, {.projector = ProjectorName(TowerKind::kVision, c.unified),
                                      .layers = c.layers,
                                      .width = c.width});
}

TowerFacts FactsOf(const AudioTower& tower) {
  const AudioConfig& c = tower.config;
  return CountTensors(tower.weights, {.projector = ProjectorName(TowerKind::kAudio, c.unified),
                                      .layers = c.layers,
                                      .width = c.unified ? c.inputs : c.width});
}

double MultiplyAdds(const VisionConfig& c, int64_t tokens) {
  return rullama::MultiplyAdds({.layers = c.layers,
                                .width = c.width,
                                .ffn_width = c.ffn_width,
                                .ffn_products = 3,
                                .patch_values = c.patch_values(),
                                .patches_per_token = c.patches_per_token(),
                                .text_width = c.text_width},
                               tokens);
}

double MultiplyAdds(const AudioConfig& c, int64_t tokens) {
  const double count = static_cast<double>(tokens);
  if (c.unified) return count * Product(c.inputs, c.text_width);
  // A convolution of 3 x 3 halves both rows and columns: 2 rows of the first and 1 of the second
  // belong to a token.
  constexpr int64_t kTaps = 9;
  const auto [first, second] = c.conv_channels;
  const double convolutions =
      Product(2 * (c.inputs / 2), kTaps * first) + Product(c.inputs / 4 * second, kTaps * first);
  // Queries, keys, values and output; the first product of the convolution is twice as wide.
  const double of_layer = 4 * Product(c.width, c.ffn_width) + 7 * Product(c.width, c.width) +
                          Product(c.kernel + 3 * kAttentionWindow, c.width);
  return count * (convolutions + Product(c.inputs / 4 * second, c.width) +
                  static_cast<double>(c.layers) * of_layer + Product(c.width, c.out_width) +
                  Product(c.out_width, c.text_width));
}

}  // namespace rullama::gemma4
