#include "core/passes/layer_split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

namespace rullama {
namespace {

// The cost of a split, its most important part first. A split by shares has only `sum`.
struct Cost {
  double overflow = 0;  // of the fullest device: the part of its room that is missing
  double sum = 0;       // over the devices
  double fill = 0;      // of the fullest device that is not in reserve: the part that is taken
  friend bool operator<(const Cost& a, const Cost& b) {
    return std::tie(a.overflow, a.sum, a.fill) < std::tie(b.overflow, b.sum, b.fill);
  }
};

Cost Join(const Cost& a, const Cost& b) {
  return {std::max(a.overflow, b.overflow), a.sum + b.sum, std::max(a.fill, b.fill)};
}

Cost CostOf(double bytes, const DeviceRoom& room) {
  const double fill = bytes / static_cast<double>(std::max<uint64_t>(room.bytes, 1));
  return {std::max(0.0, fill - 1), room.reserve ? bytes : 0, room.reserve ? 0 : fill};
}

// "1 to 4, 7" of the possible first layers of a device.
std::string TextOfCuts(const std::vector<bool>& possible) {
  std::string text;
  for (size_t first = 0; first < possible.size(); ++first) {
    if (!possible[first]) continue;
    size_t last = first;
    while (last + 1 < possible.size() && possible[last + 1]) ++last;
    text += text.empty() ? "" : ", ";
    text += first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last);
    first = last;
  }
  return text;
}

Status CheckDevices(size_t devices, const std::vector<bool>& possible) {
  const auto parts = static_cast<size_t>(std::ranges::count(possible, true)) + 1;
  if (devices <= parts) return OkStatus();
  return MakeError(ErrorKind::kUsage, "split.devices",
                   "the {} layers of the model can be cut into {} part{} at most, for {} devices; "
                   "layers that share a KV cache stay together, so name fewer devices",
                   possible.size(), parts, parts == 1 ? "" : "s", devices);
}

Status CheckLength(size_t numbers, size_t devices) {
  if (numbers == devices) return OkStatus();
  return MakeError(ErrorKind::kUsage, "split.numbers",
                   "placement.split has {} number{} for {} device{}, expected one for each",
                   numbers, numbers == 1 ? "" : "s", devices, devices == 1 ? "" : "s");
}

// The best split by dynamic programming over devices and layers: `Cost` grows with each part, so
// the best split of the first layers is a part of the best one of all. `cost_of(load, device)` is
// that of a device with so much of the sum of `loads`.
template <typename CostFunction>
LayerCounts BestSplit(std::span<const double> loads, size_t devices,
                      const std::vector<bool>& possible, const CostFunction& cost_of) {
  const size_t layers = loads.size();
  std::vector<double> sums(layers + 1, 0);
  std::partial_sum(loads.begin(), loads.end(), sums.begin() + 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<Cost> none(layers + 1, Cost{kInfinity, kInfinity, kInfinity});
  std::vector<Cost> best = none;  // of the devices so far, by the layers they have together
  best[0] = {};
  std::vector<std::vector<size_t>> begins(devices, std::vector<size_t>(layers + 1, 0));
  for (size_t device = 0; device < devices; ++device) {
    std::vector<Cost> next = none;
    for (size_t end = device + 1; end <= layers; ++end) {
      for (size_t begin = end; begin-- > device;) {
        if (begin > 0 ? device == 0 || !possible[begin] : device > 0) continue;
        const Cost cost = Join(best[begin], cost_of(sums[end] - sums[begin], device));
        if (!(cost < next[end])) continue;
        next[end] = cost;
        begins[device][end] = begin;
      }
    }
    best = std::move(next);
  }
  LayerCounts counts(devices);
  for (size_t device = devices, end = layers; device-- > 0;) {
    counts[device] = end - begins[device][end];
    end = begins[device][end];
  }
  return counts;
}

}  // namespace

Result<LayerCounts> SplitByCount(std::span<const int64_t> counts, size_t devices,
                                 const std::vector<bool>& possible_cuts) {
  RL_RETURN_IF_ERROR(CheckLength(counts.size(), devices));
  RL_RETURN_IF_ERROR(CheckDevices(devices, possible_cuts));
  const size_t layers = possible_cuts.size();
  size_t first = 0;
  LayerCounts split;
  for (const int64_t count : counts) {
    const bool fits = count >= 1 && static_cast<uint64_t>(count) <= layers - first;
    if (!fits) break;
    split.push_back(static_cast<size_t>(count));
    first += split.back();
  }
  if (split.size() != counts.size() || first != layers) {
    return MakeError(ErrorKind::kUsage, "split.numbers",
                     "placement.split is [{}], but the model has {} layers; expected whole numbers "
                     "from 1 on that add up to that, or shares with a decimal point",
                     fmt::join(counts, ", "), layers);
  }
  for (size_t device = 0, begin = 0; device + 1 < split.size(); ++device) {
    begin += split[device];
    if (possible_cuts[begin]) continue;
    return MakeError(ErrorKind::kUsage, "split.cut",
                     "placement.split is [{}] and would cut the model before layer {}, where "
                     "layers share a KV cache; a device may begin at the layers {}",
                     fmt::join(counts, ", "), begin, TextOfCuts(possible_cuts));
  }
  return split;
}

Result<LayerCounts> SplitByShare(std::span<const double> shares, size_t devices,
                                 const std::vector<bool>& possible_cuts) {
  RL_RETURN_IF_ERROR(CheckLength(shares.size(), devices));
  RL_RETURN_IF_ERROR(CheckDevices(devices, possible_cuts));
  if (!std::ranges::all_of(shares, [](double share) { return share > 0; })) {
    return MakeError(ErrorKind::kUsage, "split.numbers",
                     "placement.split has the shares [{}], expected numbers above 0; leave a "
                     "device without layers out of backend.devices",
                     fmt::join(shares, ", "));
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  const auto layers = static_cast<double>(possible_cuts.size());
  const auto distance = [&](double count, size_t device) {
    const double wanted = shares[device] / sum * layers;
    return Cost{.sum = (count - wanted) * (count - wanted)};
  };
  return BestSplit(std::vector<double>(possible_cuts.size(), 1), devices, possible_cuts, distance);
}

Result<LayerCounts> SplitByRoom(std::span<const uint64_t> layer_bytes,
                                std::span<const DeviceRoom> rooms,
                                const std::vector<bool>& possible_cuts) {
  RL_RETURN_IF_ERROR(CheckDevices(rooms.size(), possible_cuts));
  const std::vector<double> loads(layer_bytes.begin(), layer_bytes.end());
  return BestSplit(loads, rooms.size(), possible_cuts,
                   [&](double bytes, size_t device) { return CostOf(bytes, rooms[device]); });
}

std::vector<uint64_t> BytesOfLayers(const Graph& placed, std::span<const size_t> layer_of_op,
                                    size_t layers, int host_device) {
  std::vector<uint64_t> bytes(layers, 0);
  std::set<std::pair<size_t, ValueId>> counted;
  for (OpIndex i = 0; i < placed.ops.size(); ++i) {
    const Op& op = placed.ops[i];
    if (op.device == host_device) continue;
    const size_t layer = std::min(layer_of_op[i], layers - 1);
    for (const ValueId input : op.inputs) {
      if (input == kNoValue) continue;
      const Value& value = placed.value(input);
      const bool state = value.lifetime == Lifetime::kState;
      if (!state && value.lifetime != Lifetime::kConstant) continue;
      const ValueId owner = state ? value.state : input;
      if (counted.emplace(layer, owner).second) bytes[layer] += value.type.BytesAt({});
    }
  }
  return bytes;
}

}  // namespace rullama
