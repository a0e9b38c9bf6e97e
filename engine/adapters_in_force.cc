#include "engine/adapters_in_force.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

namespace rullama {

std::string AdapterName(const std::string& path) {
  const std::filesystem::path whole(path);
  const bool ends_in_slash = !whole.has_filename();
  return (ends_in_slash ? whole.parent_path() : whole).filename().string();
}

bool AreSame(const SharedAdapters& a, const SharedAdapters& b) {
  if (a == b) return true;
  const auto is_same = [](const AdapterScale& one, const AdapterScale& other) {
    return one.id == other.id && one.scale == other.scale;
  };
  return a && b && a->key == b->key && std::ranges::equal(a->scales, b->scales, is_same);
}

std::optional<AdapterFault> FindAdapterFault(std::span<const AdapterScale> scales, int64_t loaded) {
  int64_t in_force = 0;
  std::set<int32_t> seen;
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto& [id, scale] = scales[i];
    if (id < 0 || id >= loaded) {
      return AdapterFault{i, "id", fmt::format("is {}, but {} adapters are loaded", id, loaded)};
    }
    if (!seen.insert(id).second) return AdapterFault{i, "id", fmt::format("is {} once more", id)};
    if (!std::isfinite(scale) || std::abs(scale) > kMaxAdapterScale) {
      return AdapterFault{
          i, "scale",
          fmt::format("is {}, expected -{} to {}", scale, kMaxAdapterScale, kMaxAdapterScale)};
    }
    if (scale != 0 && ++in_force > kMaxAdaptersInForce) {
      return AdapterFault{i, "scale",
                          fmt::format("is not 0, but at most {} adapters are in force together",
                                      kMaxAdaptersInForce)};
    }
  }
  return std::nullopt;
}

Status CheckAppliedAdapters(std::span<const AdapterFacts> loaded) {
  const auto applied =
      std::ranges::count_if(loaded, [](const AdapterFacts& facts) { return facts.scale != 0; });
  if (applied <= kMaxAdaptersInForce) return OkStatus();
  return MakeError(ErrorKind::kUsage, "adapter.limit",
                   "{} adapters have another scale than 0, expected at most {}, which are in force "
                   "together; give the others the scale 0 (FILE:0), or start the server with "
                   "--lora-init-without-apply",
                   applied, kMaxAdaptersInForce);
}

AdapterTable::AdapterTable(std::vector<AdapterFacts> loaded, bool can_choose, bool apply)
    : loaded_(std::move(loaded)), can_choose_(can_choose) {
  for (size_t i = 0; i < loaded_.size(); ++i) {
    scales_.push_back({static_cast<int32_t>(i), apply || !can_choose ? loaded_[i].scale : 0});
  }
}

std::vector<AdapterInfo> AdapterTable::List() const {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterInfo> list;
  for (size_t i = 0; i < loaded_.size(); ++i) {
    const AdapterFacts& facts = loaded_[i];
    list.push_back({.name = AdapterName(facts.path),
                    .scale = scales_[i].scale,
                    .own_scale = facts.scale,
                    .rank = facts.rank,
                    .alpha = facts.alpha});
  }
  return list;
}

Status AdapterTable::Check(std::span<const AdapterScale> scales) const {
  const auto fault = FindAdapterFault(scales, std::ssize(loaded_));
  if (!fault) return OkStatus();
  return MakeError(ErrorKind::kUsage, "usage.request", "adapters[{}].{} {}", fault->index,
                   fault->member, fault->what);
}

SharedAdapters AdapterTable::Join(std::vector<AdapterScale> scales) const {
  std::erase_if(scales, [](const AdapterScale& one) { return one.scale == 0; });
  if (scales.empty()) return nullptr;
  std::ranges::sort(scales, {}, &AdapterScale::id);
  auto joined = std::make_shared<AdaptersInForce>(AdaptersInForce{.scales = std::move(scales)});
  const std::vector<ModelFingerprint> parts = Stored(joined);
  const uint64_t hash = XXH3_64bits(parts.data(), parts.size() * sizeof(ModelFingerprint));
  joined->key = std::max<uint64_t>(hash, 1);
  return joined;
}

Result<SharedAdapters> AdapterTable::InForce(
    const std::optional<std::vector<AdapterScale>>& chosen) const {
  if (chosen) {
    if (!can_choose_ && !loaded_.empty()) {
      return MakeError(ErrorKind::kUsage, "usage.request",
                       "adapters are chosen, but those of this engine are part of the model for "
                       "all requests");
    }
    RL_RETURN_IF_ERROR(Check(*chosen));
    return Join(*chosen);
  }
  if (!can_choose_) return nullptr;
  const std::lock_guard lock(mutex_);
  RL_RETURN_IF_ERROR(Check(scales_));
  return Join(scales_);
}

Status AdapterTable::SetScales(std::span<const AdapterScale> scales) {
  if (!can_choose_ && !loaded_.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "the adapters of this engine are part of the model for all requests");
  }
  RL_RETURN_IF_ERROR(Check(scales));
  const std::lock_guard lock(mutex_);
  for (AdapterScale& one : scales_) one.scale = 0;
  for (const AdapterScale& one : scales) scales_[static_cast<size_t>(one.id)].scale = one.scale;
  return OkStatus();
}

std::vector<ModelFingerprint> AdapterTable::Stored(const SharedAdapters& adapters) const {
  std::vector<ModelFingerprint> stored;
  if (!adapters) return stored;
  for (const auto& [id, scale] : adapters->scales) {
    stored.push_back({loaded_[static_cast<size_t>(id)].content, std::bit_cast<uint64_t>(scale)});
  }
  return stored;
}

std::optional<SharedAdapters> AdapterTable::Restored(
    std::span<const ModelFingerprint> stored) const {
  std::vector<AdapterScale> scales;
  for (const auto& [content, scale] : stored) {
    // Adapters of one content are as good as each other, but each is in force once.
    const auto is_free = [&, wanted = content](int32_t id) {
      return loaded_[static_cast<size_t>(id)].content == wanted &&
             std::ranges::find(scales, id, &AdapterScale::id) == scales.end();
    };
    int32_t id = 0;
    while (id < std::ssize(loaded_) && !is_free(id)) ++id;
    if (id == std::ssize(loaded_)) return std::nullopt;
    scales.push_back({id, std::bit_cast<double>(scale)});
  }
  if (!Check(scales)) return std::nullopt;
  return Join(std::move(scales));
}

}  // namespace rullama
