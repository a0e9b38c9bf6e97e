#include "models/gemma4/towers/towers.h"

#include <memory>
#include <span>
#include <utility>

#include "media/resize.h"
#include "models/gemma4/towers/audio_graph.h"
#include "models/gemma4/towers/tower_cost.h"
#include "models/gemma4/towers/tower_file.h"
#include "models/gemma4/towers/vision_graph.h"

namespace rullama::gemma4 {
namespace {

class Gemma4PictureTower final : public PictureTower {
 public:
  explicit Gemma4PictureTower(VisionTower tower) : tower_(std::move(tower)) {}

  [[nodiscard]] Result<TowerGraph> BuildGraph(int64_t max_tokens) const override {
    return BuildVisionGraph(tower_, max_tokens);
  }
  [[nodiscard]] TowerFacts facts() const override { return FactsOf(tower_); }
  [[nodiscard]] double MultiplyAdds(int64_t tokens) const override {
    return gemma4::MultiplyAdds(tower_.config, tokens);
  }
  [[nodiscard]] std::span<const uint32_t> Budgets() const override { return kImageTokenBudgets; }
  [[nodiscard]] uint32_t SquareSide() const override {
    return static_cast<uint32_t>(tower_.config.patch * tower_.config.pool);
  }
  [[nodiscard]] Result<BlockGrid> Fit(uint32_t width, uint32_t height,
                                      uint32_t budget) const override {
    return FitPicture(tower_.config, width, height, budget);
  }
  [[nodiscard]] TowerStep Prepare(const Picture& scaled) const override {
    return PictureInputs(tower_.config, scaled);
  }

 private:
  [[nodiscard]] Picture Resize(const Picture& picture, uint32_t width,
                               uint32_t height) const override {
    return ResizeBicubic(picture, width, height);
  }

  VisionTower tower_;
};

class Gemma4SoundTower final : public SoundTower {
 public:
  explicit Gemma4SoundTower(AudioTower tower) : tower_(std::move(tower)) {}

  [[nodiscard]] Result<TowerGraph> BuildGraph(int64_t max_tokens) const override {
    return BuildAudioGraph(tower_, max_tokens);
  }
  [[nodiscard]] TowerFacts facts() const override { return FactsOf(tower_); }
  [[nodiscard]] double MultiplyAdds(int64_t tokens) const override {
    return gemma4::MultiplyAdds(tower_.config, tokens);
  }
  [[nodiscard]] int64_t Tokens(size_t samples) const override {
    return AudioTokens(tower_.config, samples);
  }
  [[nodiscard]] Result<TowerStep> Prepare(std::span<const float> samples) const override {
    return SoundInputs(tower_.config, samples);
  }

 private:
  AudioTower tower_;
};

}  // namespace

Result<Towers> ReadTowers(const GgufFile& file) {
  for (const std::string_view projector : {kVisionProjector, kAudioProjector}) {
    RL_ASSIGN_OR_RETURN(const auto width, ProjectedWidth(file, {projector}));
    if (width) return ReadTowers(file, *width);
  }
  return Towers();
}

Result<Towers> ReadTowers(const GgufFile& file, int64_t text_width) {
  Towers towers;
  RL_ASSIGN_OR_RETURN(auto vision, ReadVisionTower(file, text_width));
  if (vision) towers.picture = std::make_unique<Gemma4PictureTower>(*std::move(vision));
  RL_ASSIGN_OR_RETURN(auto audio, ReadAudioTower(file, text_width));
  if (audio) towers.sound = std::make_unique<Gemma4SoundTower>(*std::move(audio));
  return towers;
}

}  // namespace rullama::gemma4
