#include "cli/bench/encode_bench.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <span>
#include <utility>

#include "core/base/clock.h"
#include "engine/media/media_encoder.h"

namespace rullama::cli {
namespace {

// A picture of `tokens` blocks of these sides, as square as their number allows.
rullama::Picture NoisePicture(uint32_t tokens, uint32_t side) {
  uint32_t rows = 1;
  for (uint32_t i = 1; i * i <= tokens; ++i) {
    if (tokens % i == 0) rows = i;
  }
  rullama::Picture picture{.width = tokens / rows * side, .height = rows * side, .rgb = {}};
  picture.rgb.resize(size_t{3} * picture.width * picture.height);
  std::minstd_rand noise(1);
  for (uint8_t& value : picture.rgb) value = static_cast<uint8_t>(noise() >> 8);
  return picture;
}

}  // namespace

Result<DecodedMedium> MakeBenchPicture(const LoadedModel& model, int64_t image_tokens) {
  const PictureTower* tower = model.towers.towers.picture.get();
  if (tower == nullptr) return UnsupportedMedium(MediaKind::kPicture);
  const std::span<const uint32_t> budgets = tower->Budgets();
  if (std::ranges::find(budgets, image_tokens) == budgets.end()) {
    return MakeError(ErrorKind::kUsage, "usage.option", "--image-tokens has {}, expected one of {}",
                     image_tokens, fmt::join(budgets, ", "));
  }
  const auto budget = static_cast<uint32_t>(image_tokens);
  DecodedMedium medium{.kind = MediaKind::kPicture, .image_tokens = budget};
  rullama::Picture noise = NoisePicture(budget, tower->SquareSide());
  RL_ASSIGN_OR_RETURN(const BlockGrid grid, tower->Fit(noise.width, noise.height, budget));
  RL_ASSIGN_OR_RETURN(medium.scaled, tower->Scale(std::move(noise), budget));
  medium.tokens = grid.tokens();
  return medium;
}

void ChangePicture(DecodedMedium& medium) { ++medium.scaled.rgb.front(); }

double SecondsToPrepare(const LoadedModel& model, const DecodedMedium& medium) {
  const PictureTower& tower = *model.towers.towers.picture;
  const auto start = Clock::now();
  static_cast<void>(tower.Prepare(medium.scaled));
  return SecondsSince(start);
}

OpCost CostOfPicture(const LoadedModel& model, int64_t tokens) {
  const PictureTower& tower = *model.towers.towers.picture;
  const auto bytes = static_cast<double>(tower.facts().bytes);
  return {.bytes = bytes, .stored_bytes = bytes, .operations = 2 * tower.MultiplyAdds(tokens)};
}

}  // namespace rullama::cli
