// The work of media in the towers of published models, whose numbers are known.
#include "models/gemma4/towers/tower_cost.h"

#include <gtest/gtest.h>

namespace rullama::gemma4 {
namespace {

constexpr VisionConfig kE2b = {.patch = 16,
                               .pool = 3,
                               .width = 768,
                               .positions = 10'240,
                               .text_width = 1536,
                               .layers = 16,
                               .heads = 12,
                               .ffn_width = 3072};
constexpr VisionConfig kA4b = {.patch = 16,
                               .pool = 3,
                               .width = 1152,
                               .positions = 10'240,
                               .text_width = 2816,
                               .layers = 27,
                               .heads = 16,
                               .ffn_width = 4304,
                               .standardize = true};
constexpr VisionConfig k12b = {
    .unified = true, .patch = 48, .pool = 1, .width = 3840, .positions = 1120, .text_width = 3840};

double Gflop(const VisionConfig& config, int64_t tokens) {
  return 2 * MultiplyAdds(config, tokens) / 1e9;
}

TEST(TowerCost, Pictures) {
  const struct {
    const VisionConfig& config;
    int64_t tokens;
    double gflop;
  } rows[] = {{kE2b, 70, 211},      {kE2b, 280, 1080}, {kE2b, 1120, 8050},
              {kA4b, 70, 736},      {kA4b, 280, 3540}, {kA4b, 560, 8660},
              {kA4b, 1120, 23'600}, {k12b, 280, 23},   {k12b, 1120, 93}};
  for (const auto& row : rows) {
    EXPECT_NEAR(Gflop(row.config, row.tokens), row.gflop, 0.02 * row.gflop)
        << row.config.width << ", " << row.tokens << " tokens";
  }
}

TEST(TowerCost, ASecondOfSound) {
  constexpr int64_t kTokens = 25;
  const AudioConfig conformer = {.inputs = 128,
                                 .text_width = 1536,
                                 .layers = 12,
                                 .width = 1024,
                                 .heads = 8,
                                 .ffn_width = 4096,
                                 .out_width = 1536,
                                 .conv_channels = {128, 32},
                                 .kernel = 5};
  EXPECT_NEAR(2 * MultiplyAdds(conformer, kTokens) / 1e9, 14.8, 0.4);
  const AudioConfig unified = {.unified = true, .inputs = 640, .text_width = 3840};
  EXPECT_NEAR(2 * MultiplyAdds(unified, kTokens) / 1e9, 0.12, 0.003);
}

}  // namespace
}  // namespace rullama::gemma4
