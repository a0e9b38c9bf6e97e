#include "models/gemma3/towers/towers.h"

#include <memory>
#include <span>
#include <utility>

#include "media/resize.h"
#include "models/common/towers/tower_cost.h"
#include "models/gemma3/towers/vision_graph.h"

namespace rullama::gemma3 {
namespace {

class Gemma3PictureTower final : public PictureTower {
 public:
  explicit Gemma3PictureTower(VisionTower tower)
      : tower_(std::move(tower)), tokens_(static_cast<uint32_t>(tower_.config.tokens())) {}

  [[nodiscard]] Result<TowerGraph> BuildGraph(int64_t max_tokens) const override {
    return BuildVisionGraph(tower_, max_tokens);
  }
  [[nodiscard]] TowerFacts facts() const override {
    return CountTensors(tower_.weights, {.projector = kVisionProjectorType,
                                         .layers = tower_.config.layers,
                                         .width = tower_.config.width});
  }
  [[nodiscard]] double MultiplyAdds(int64_t tokens) const override {
    const VisionConfig& c = tower_.config;
    return rullama::MultiplyAdds({.layers = c.layers,
                                  .width = c.width,
                                  .ffn_width = c.ffn_width,
                                  .ffn_products = 2,
                                  .patch_values = c.patch_values(),
                                  .patches_per_token = c.patches_per_token(),
                                  .text_width = c.text_width},
                                 tokens);
  }
  [[nodiscard]] std::span<const uint32_t> Budgets() const override { return {&tokens_, 1}; }
  [[nodiscard]] uint32_t SquareSide() const override {
    return static_cast<uint32_t>(tower_.config.patch * tower_.config.pool);
  }
  // Every picture is stretched to the same square.
  [[nodiscard]] Result<BlockGrid> Fit(uint32_t /*width*/, uint32_t /*height*/,
                                      uint32_t /*budget*/) const override {
    const auto squares = static_cast<uint32_t>(tower_.config.side) / SquareSide();
    return BlockGrid{.columns = squares, .rows = squares};
  }
  [[nodiscard]] TowerStep Prepare(const Picture& scaled) const override {
    return PictureInputs(tower_.config, scaled);
  }

 private:
  [[nodiscard]] Picture Resize(const Picture& picture, uint32_t width,
                               uint32_t height) const override {
    return ResizeBilinear(picture, width, height);
  }

  VisionTower tower_;
  uint32_t tokens_;  // of every picture
};

}  // namespace

Result<Towers> ReadTowers(const GgufFile& file, int64_t text_width) {
  Towers towers;
  RL_ASSIGN_OR_RETURN(auto vision, ReadVisionTower(file, text_width));
  if (vision) towers.picture = std::make_unique<Gemma3PictureTower>(*std::move(vision));
  return towers;
}

Result<Towers> ReadTowers(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(const auto width, TextWidthOf(file));
  if (!width) return Towers();
  return ReadTowers(file, *width);
}

}  // namespace rullama::gemma3
