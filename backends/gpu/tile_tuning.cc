#include "backends/gpu/tile_tuning.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "backends/gpu/bytes.h"
#include "backends/gpu/device_objects.h"
#include "backends/gpu/plan_builder.h"
#include "backends/gpu/product_tiles.h"
#include "backends/gpu/schedule.h"

namespace rullama::gpu {
namespace {

constexpr uint32_t kMagic = 0x54544C52;  // of the blob
constexpr uint64_t kMaxResident = 4;     // workgroups on a multiprocessor
constexpr uint64_t kFewSteps = 16, kManySteps = 64;
constexpr int64_t kStepTerms = 64;
constexpr int64_t kRowTiles = 4;  // that read the same weights, as those of prompts do
constexpr int kRepetitions = 5;

std::string NameOf(const Driver& driver) {
  const std::string cache = driver.CacheName();
  return cache.empty() ? cache : "tile times of " + cache;
}

struct ProbeSize {
  int64_t rows, columns, terms;
};

// One product with a weight of q4_k, all zeros.
class Probe {
 public:
  Probe(Driver& driver, BlockMemory& blocks, const ProbeSize& size)
      : driver_(driver),
        zeros_(ShapeOf(DType::kQ4_K, std::array{size.columns, size.terms}).file_row *
               static_cast<uint64_t>(size.columns)),
        weight_(driver, blocks, WeightOf(size)),
        x_(driver, blocks, BytesOf(size.rows, size.terms), RL_BUFFER_IO),
        y_(driver, blocks, BytesOf(size.rows, size.columns), RL_BUFFER_IO),
        step_(blocks.Allocate(sizeof(StepWords), Residence::kShared)),
        memory_(driver, blocks) {
    const StepWords words{.t = static_cast<uint32_t>(size.rows)};
    driver.Write(step_, 0, std::as_bytes(std::span(&words, 1)));
    driver.FillZero(x_.memory());
    constexpr rl_dim kRowsOfStep{0, 1, 0};
    values_[0] = ValueOf(DType::kF32, RL_LIFETIME_INPUT, kRowsOfStep, size.terms);
    values_[1] = ValueOf(DType::kQ4_K, RL_LIFETIME_CONSTANT, {size.columns, 0, 0}, size.terms);
    values_[2] = ValueOf(DType::kF32, RL_LIFETIME_OUTPUT, kRowsOfStep, size.columns);
    Place(x_, values_[0]);
    values_[1].weight = reinterpret_cast<rl_weight*>(static_cast<sdk::Weight*>(&weight_));
    Place(y_, values_[2]);
    graph_ = {.struct_size = sizeof(rl_graph),
              .value_size = sizeof(rl_value),
              .op_size = sizeof(rl_op),
              .value_count = static_cast<uint32_t>(values_.size()),
              .op_count = 1,
              .reserved = 0,
              .values = values_.data(),
              .ops = &op_,
              .max_t = size.rows,
              .max_r = 0,
              .name = {"tile times", 10},
              .record_times = 0,
              .reserved2 = 0};
  }

  // Nanoseconds of the product by this tile, in the best of some runs.
  uint64_t TimeOf(const CoopTile& tile, KernelCache& kernels, Target target) {
    const TileTimes only{tile, 1, 1, 1, 1};
    target.prefers.tile_times = {&only, 1};
    const LoweredGraph lowered = Lower(memory_, sdk::GraphView(graph_), target, step_.address());
    kernels.Prepare(KindsOf(lowered.dispatches));
    std::vector<uint32_t> levels;
    if (target.can.overlaps_dispatches) levels = LevelsOf(lowered.dispatches);
    const auto commands = driver_.Record(
        {.dispatches = lowered.dispatches, .levels = levels, .kernels = kernels, .timed = true});
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < kRepetitions; ++i) {
      uint32_t failed = 0;
      driver_.Submit(*commands, {&step_, offsetof(StepWords, failed_op),
                                 std::as_writable_bytes(std::span(&failed, 1))});
      driver_.Wait();
      std::vector<DispatchTime> times;
      driver_.TimesOf(*commands, times);
      uint64_t product = 0;
      for (size_t k = 0; k < times.size(); ++k) {
        if (lowered.dispatches[k].pipeline.shader != Shader::kMatMulCoop) continue;
        product += times[k].end - times[k].begin;
      }
      best = std::min(best, product);
    }
    return best;
  }

 private:
  static uint64_t BytesOf(int64_t rows, int64_t columns) {
    return static_cast<uint64_t>(rows * columns) * sizeof(float);
  }
  rl_weight_desc WeightOf(const ProbeSize& size) const {
    return {.struct_size = sizeof(rl_weight_desc),
            .dtype = static_cast<uint32_t>(DType::kQ4_K),
            .rank = 2,
            .reserved = 0,
            .dims = {size.columns, size.terms},
            .name = {"zeros", 5},
            .data = zeros_.data(),
            .bytes = zeros_.size(),
            .uses = RL_WEIGHT_IN_PRODUCTS,
            .reserved2 = 0};
  }
  static rl_value ValueOf(DType dtype, rl_lifetime lifetime, rl_dim rows, int64_t columns) {
    rl_value value{};
    value.dtype = static_cast<uint32_t>(dtype);
    value.rank = 2;
    value.dims[0] = rows;
    value.dims[1] = {columns, 0, 0};
    value.lifetime = lifetime;
    return value;
  }
  static void Place(OwnedBuffer& buffer, rl_value& value) {
    value.buffer = reinterpret_cast<rl_buffer*>(static_cast<sdk::Buffer*>(&buffer));
    value.bytes = buffer.size();
  }

  Driver& driver_;
  std::vector<std::byte> zeros_;
  OwnedWeight weight_;
  OwnedBuffer x_, y_;
  Allocation step_;
  PlanMemory memory_;
  std::array<rl_value, 3> values_{};
  rl_matmul_attrs attrs_{.struct_size = sizeof(rl_matmul_attrs), .transpose_weight = 1};
  std::array<uint32_t, 2> inputs_{0, 1};
  uint32_t result_ = 2;
  rl_op op_{.kind = RL_OP_matmul,
            .input_count = 2,
            .inputs = inputs_.data(),
            .result_count = 1,
            .attrs_size = sizeof(attrs_),
            .results = &result_,
            .attrs = &attrs_};
  rl_graph graph_{};
};

// The times of a tile, by products that give each multiprocessor 1, 2, ... workgroups: as many fit
// as finish most work in a given time.
TileTimes Measure(Driver& driver, BlockMemory& blocks, KernelCache& kernels, const Target& target,
                  const CoopTile& tile) {
  TileTimes times{.tile = tile, .resident = 1, .alone = 1, .together = 1, .other = 0};
  uint64_t best = 0;  // nanoseconds of the product with this many workgroups
  for (uint64_t groups = 1; groups <= kMaxResident; ++groups) {
    const auto time_of = [&](uint64_t steps) {
      const uint64_t column_tiles = CeilDiv(groups * target.can.multiprocessors, kRowTiles);
      Probe probe(driver, blocks,
                  {.rows = kRowTiles * tile.rows,
                   .columns = static_cast<int64_t>(column_tiles * tile.columns),
                   .terms = static_cast<int64_t>(steps) * kStepTerms});
      return probe.TimeOf(tile, kernels, target);
    };
    const uint64_t few = time_of(kFewSteps), many = time_of(kManySteps);
    const uint64_t step =
        std::max<uint64_t>((many - std::min(few, many)) / (kManySteps - kFewSteps), 1);
    if (groups == 1) times.alone = step;
    // A twentieth less is noise.
    if (groups > 1 && many * times.resident * 20 >= best * groups * 19) continue;
    best = many;
    times.resident = groups;
    times.together = std::max(step, times.alone);
    times.other = many - std::min(many, times.together * kManySteps);
  }
  return times;
}

}  // namespace

std::vector<TileTimes> KeptTileTimes(const Driver& driver) {
  const std::string name = NameOf(driver);
  if (name.empty() || !driver.target().can.matrix_units) return {};
  const std::vector<std::byte> blob = driver.host().BlobGet(name);
  std::span<const std::byte> rest = blob;
  uint32_t magic = 0;
  if (!Take(rest, magic) || magic != kMagic) return {};
  std::vector<TileTimes> kept;
  for (TileTimes times{}; Take(rest, times);) {
    const bool is_known = std::ranges::any_of(
        kMeasuredTileTimes, [&](const TileTimes& known) { return known.tile == times.tile; });
    if (!is_known || times.resident == 0 || times.together < times.alone) return {};
    kept.push_back(times);
  }
  return rest.empty() ? kept : std::vector<TileTimes>();
}

void TuneTiles(Driver& driver, BlockMemory& blocks, KernelCache& kernels, const Target& target) {
  const std::string name = NameOf(driver);
  if (!target.can.matrix_units || !target.can.tells_times || name.empty()) {
    throw sdk::Error(RL_INVALID_ARGUMENT,
                     "option tune is 'on', but needs matrix units, a device that tells times, and "
                     "a driver for which kernels are kept on disk");
  }
  std::vector<std::byte> blob;
  Append(kMagic, blob);
  for (const TileTimes& known : kMeasuredTileTimes) {
    const TileTimes times = Measure(driver, blocks, kernels, target, known.tile);
    Append(times, blob);
    const auto text = [](uint64_t number) { return std::to_string(number); };
    driver.host().Log(RL_LOG_INFO,
                      "tile of " + text(times.tile.rows) + " rows and " + text(times.tile.columns) +
                          " columns: " + text(times.resident) + " on a multiprocessor, " +
                          text(times.alone) + " ns a step alone, " + text(times.together) +
                          " together, " + text(times.other) + " else");
  }
  if (driver.host().BlobPut(name, blob)) return;
  throw sdk::Error(RL_INTERNAL, "the times of tiles could not be kept in the cache folder");
}

}  // namespace rullama::gpu
