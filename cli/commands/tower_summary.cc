#include "cli/commands/tower_summary.h"

#include <fmt/format.h>

#include <memory>
#include <span>
#include <vector>

#include "core/base/size_text.h"
#include "engine/loading/backend_setup.h"
#include "engine/media/media_encoder.h"
#include "media/sound.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

// The reference is always there, and a plan of its has the values of any other backend's.
class ReferenceEncoder {
 public:
  static Result<std::unique_ptr<ReferenceEncoder>> Open(const Towers& towers,
                                                        const GgufFile& file) {
    auto opened = std::make_unique<ReferenceEncoder>();
    opened->registry_ = rullama::MakeRegistry(Config(), {}, HostHooks());
    RL_ASSIGN_OR_RETURN(const auto plugin, opened->registry_->Find(kReferenceBackend));
    RL_ASSIGN_OR_RETURN(opened->device_, plugin->Open(0, {}));
    opened->encoder_ = std::make_unique<MediaEncoder>(
        towers, file, std::vector<Device*>{opened->device_.get()}, PlacementPolicy{});
    return opened;
  }
  [[nodiscard]] Result<uint64_t> WorkBytes(MediaKind kind, int64_t tokens) const {
    RL_ASSIGN_OR_RETURN(const auto needs, encoder_->PredictMemory(kind, tokens));
    return needs.front().work;
  }

 private:
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<MediaEncoder> encoder_;
};

Result<json> TowerAsJson(const Tower& tower, MediaKind kind, const std::vector<int64_t>& tokens,
                         const ReferenceEncoder& encoder) {
  constexpr double kFlopOfMultiplyAdd = 2;
  constexpr double kTera = 1e12;
  json costs = json::array();
  for (const int64_t count : tokens) {
    RL_ASSIGN_OR_RETURN(const uint64_t work, encoder.WorkBytes(kind, count));
    costs.push_back({{"tokens", count},
                     {"tflop", kFlopOfMultiplyAdd * tower.MultiplyAdds(count) / kTera},
                     {"work_bytes", work}});
  }
  const TowerFacts facts = tower.facts();
  return json{{"projector", std::string(facts.projector)},
              {"layers", facts.layers},
              {"width", facts.width},
              {"parameters", facts.parameters},
              {"bytes", facts.bytes},
              {"costs", std::move(costs)}};
}

std::string TowerText(std::string_view name, std::string_view medium, const json& tower) {
  const auto layers = tower["layers"].get<int64_t>();
  std::string text = fmt::format(
      "{} tower: {}, {}, width {}, {} parameters, {}\n", name,
      tower["projector"].get<std::string>(),
      layers == 0 ? std::string("a projection alone") : fmt::format("{} layers", layers),
      tower["width"].get<int64_t>(), ParametersText(tower["parameters"].get<uint64_t>()),
      SizeText(tower["bytes"].get<uint64_t>()));
  for (const json& cost : tower["costs"]) {
    text += fmt::format("  {} of {:>4} tokens: {:.3g} TFLOP, {} of working memory\n", medium,
                        cost["tokens"].get<int64_t>(), cost["tflop"].get<double>(),
                        SizeText(cost["work_bytes"].get<uint64_t>()));
  }
  return text;
}

}  // namespace

Result<json> TowersAsJson(const Towers& towers, const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(const auto encoder, ReferenceEncoder::Open(towers, file));
  json result = json::object();
  if (towers.picture) {
    const std::span<const uint32_t> of_tower = towers.picture->Budgets();
    const std::vector<int64_t> budgets(of_tower.begin(), of_tower.end());
    RL_ASSIGN_OR_RETURN(result["picture"],
                        TowerAsJson(*towers.picture, MediaKind::kPicture, budgets, *encoder));
  }
  if (towers.sound) {
    const std::vector<int64_t> lengths = {towers.sound->Tokens(kSoundRate),
                                          towers.sound->Tokens(kMaxSoundPiece)};
    RL_ASSIGN_OR_RETURN(result["sound"],
                        TowerAsJson(*towers.sound, MediaKind::kSound, lengths, *encoder));
  }
  return result;
}

std::string TowersText(const json& towers) {
  std::string text;
  if (towers.contains("picture")) text += TowerText("image", "a picture", towers["picture"]);
  if (towers.contains("sound")) text += TowerText("audio", "a sound", towers["sound"]);
  return text;
}

}  // namespace rullama::cli
