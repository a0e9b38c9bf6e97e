// Attention as one op. It reads each key and value once for all query heads that share it. The keys
// of a few query rows are split into parts. With few rows in all, workers share the parts, and a
// second node combines the partial results.
//
// The result of a row of a decode step must not depend on the other rows. So each row is computed
// alone, its keys are read as one run whether they are cached or fresh, and the number of parts is
// a function of the row's position and the number of workers; where other rows keep the workers
// busy, one worker computes and combines the same parts.
#include <rullama/sdk/cache_rows.h>
#include <rullama/sdk/slots.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cpu/attention_keys.h"
#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// Queries that are processed together in prefill: enough to reuse each converted tile of keys, few
// enough that the scores of all heads stay in L1.
constexpr int64_t kQueryTile = 64;
// On a matrix unit: enough that the conversion of keys and values takes less than the products.
constexpr int64_t kSplitQueryTile = 256;
// Fewest query rows of a tile, however many heads share a key.
constexpr int64_t kFewestRows = 8;
// Most query rows of a step in which workers share the parts of the keys.
constexpr int64_t kSplitRows = kFewestRows;
// Fewest keys per part when keys are split.
constexpr int64_t kMinKeysPerPart = 64;

// Sizes of the query tensor and the number of query heads per key/value head.
struct HeadShape {
  size_t heads, dim, group;
};

// Unnormalised results of the parts of the keys: for each part and each (row, head) index, an
// accumulator of `dim` floats, the running maximum and the sum of exponentials. Per part these are
// three arrays one after the other.
class PartialSoftmax {
 public:
  // For `rows` (row, head) indices.
  PartialSoftmax(Workspace& workspace, size_t parts, size_t rows, size_t dim)
      : rows_(rows),
        dim_(dim),
        data_(reinterpret_cast<float*>(workspace.Allocate(parts * part_stride() * sizeof(float)))) {
  }

  // Floats between the parts.
  [[nodiscard]] size_t part_stride() const { return rows_ * (dim_ + 2); }
  [[nodiscard]] float* Accumulator(size_t part, size_t index) const {
    return data_ + part * part_stride() + index * dim_;
  }
  [[nodiscard]] float& Max(size_t part, size_t index) const {
    return data_[part * part_stride() + rows_ * dim_ + index];
  }
  [[nodiscard]] float& Sum(size_t part, size_t index) const {
    return data_[part * part_stride() + rows_ * (dim_ + 1) + index];
  }

 private:
  size_t rows_;  // (row, head) pairs
  size_t dim_;
  float* data_;
};

// The division of one execution into items: tiles of query rows, key/value heads and parts of the
// keys. Items have parts only if there is a single tile; `parts` is the most of any row.
struct Split {
  int64_t tiles;
  int64_t kv_heads;
  int64_t parts;
  bool shares_parts;  // among the items
};

class AttentionNode final : public Node {
 public:
  explicit AttentionNode(const CompileContext& context)
      : kernels_(context.kernels),
        q_(context.Input(operands::Attention::q)),
        kv_{context.Input(operands::Attention::k_new), context.Input(operands::Attention::v_new),
            context.Input(operands::Attention::k_state),
            context.Input(operands::Attention::v_state)},
        rows_{
            context.Input(operands::Attention::q_pos),  context.Input(operands::Attention::q_slot),
            context.Input(operands::Attention::kv_pos), context.Input(operands::Attention::kv_slot),
            context.Input(operands::Attention::past),   context.Input(operands::Attention::q_end),
            context.attrs<rl_attention_attrs>().mask,   context.attrs<rl_attention_attrs>().window},
        scale_(context.attrs<rl_attention_attrs>().scale),
        past_is_input_(HasPastInput(context)),
        each_alone_(past_is_input_ && DecodesCausally(context)),
        y_(context.Result()),
        partial_(context.workspace, static_cast<size_t>(context.workers),
                 kSplitRows * ShapeAt(context.MaxStep()).heads, ShapeAt(context.MaxStep()).dim) {
    const HeadShape shape = ShapeAt(context.MaxStep());
    const auto group = static_cast<int64_t>(shape.group);
    const auto few = static_cast<size_t>(TileRows(kQueryTile, group) * group);
    size_t max_queries = few;
    size_t scratch_bytes = AttentionScratchBytes(shape.dim, few);
    if (UsesMatrixUnit(context.MaxStep())) {
      max_queries = static_cast<size_t>(TileRows(kSplitQueryTile, group) * group);
      scratch_bytes = std::max(scratch_bytes, SplitAttentionScratchBytes(shape.dim, max_queries));
    }
    const auto parts = static_cast<size_t>(context.workers);
    for (int worker = 0; worker < context.workers; ++worker) {
      WorkerState state{.scratch = context.workspace.AllocateForOp(scratch_bytes),
                        .partial = {context.workspace, parts, shape.group, shape.dim}};
      state.segments.reserve(kReservedSegments);
      state.queries.resize(max_queries);
      workers_.push_back(std::move(state));
    }
  }

  [[nodiscard]] Split SplitOf(const Step& step) const {
    const int64_t rows = q_.Rows(step);
    const int64_t kv_heads = kv_.k_new.Dim(1, step);
    if (rows == 0) return {0, kv_heads, 0, false};
    const int64_t tile_rows = TileRowsAt(step);
    const int64_t tiles = (rows + tile_rows - 1) / tile_rows;
    const int64_t parts = PartsOf(step, MaxPast(step) + (each_alone_ ? rows - 1 : 0));
    const bool shares = rows <= kSplitRows && tiles * kv_heads < 2 * step.workers && parts > 1;
    return {tiles, kv_heads, parts, shares};
  }

  [[nodiscard]] int64_t Items(const Step& step) const override {
    const Split split = SplitOf(step);
    return split.tiles * split.kv_heads * (split.shares_parts ? split.parts : 1);
  }

  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const Split split = SplitOf(step);
    const int64_t parts = split.shares_parts ? split.parts : 1;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t part = item % parts;
      const int64_t head = item / parts % split.kv_heads;
      const int64_t tile = item / (parts * split.kv_heads);
      RunTile(step, worker, tile,
              {static_cast<size_t>(head), static_cast<size_t>(part), split.shares_parts});
    }
  }

  // Combines the parts of every row and head.
  void Merge(const Step& step) const {
    const HeadShape shape = ShapeAt(step);
    for (size_t row = 0; row < q_.Count(0, step); ++row) {
      const auto parts =
          static_cast<size_t>(PartsOf(step, OldKeysOf(step, static_cast<int64_t>(row))));
      for (size_t head = 0; parts > 1 && head < shape.heads; ++head) {
        const size_t index = row * shape.heads + head;
        MergeParts(partial_, index, parts, shape.dim, y_.as<float>() + index * shape.dim);
      }
    }
  }

 private:
  static constexpr size_t kReservedSegments = 64;
  static constexpr int64_t kItemsPerWorker = 4;  // at least, so that none waits long for another
  static constexpr size_t kMaxParts = 256;       // the backend has at most as many workers
  static constexpr size_t kMaxQueries = 64;      // queries per kernel call when keys are split

  struct WorkerState {
    std::byte* scratch = nullptr;
    std::vector<KvSegment> segments = {};
    std::vector<AttentionQuery> queries = {};
    PartialSoftmax partial;  // of one row of one key/value head
  };

  // One key/value head, and the part of the keys that an item is for if items share them.
  struct KeyRange {
    size_t kv_head, part;
    bool shares_parts;
  };

  static void MergeParts(const PartialSoftmax& partial, size_t index, size_t parts, size_t dim,
                         float* y) {
    std::array<float, kMaxParts> max{};
    std::array<float, kMaxParts> sum{};
    for (size_t part = 0; part < std::min(parts, kMaxParts); ++part) {
      max[part] = partial.Max(part, index);
      sum[part] = partial.Sum(part, index);
    }
    AttentionMerge(partial.Accumulator(0, index), partial.part_stride(), max.data(), sum.data(),
                   std::min(parts, kMaxParts), dim, y);
  }

  // Query rows of a tile of some `queries` queries.
  static int64_t TileRows(int64_t queries, int64_t group) {
    return std::max(queries / group, kFewestRows);
  }

  // By the shapes of the step alone, as in products: a row gets the same bytes whatever the others
  // are.
  [[nodiscard]] bool UsesMatrixUnit(const Step& step) const {
    return kernels_.split_attention != nullptr && !each_alone_ &&
           static_cast<size_t>(q_.Rows(step)) >= kernels_.split_min_batch;
  }

  // Query rows that are processed together, fewer where workers would have nothing to do.
  [[nodiscard]] int64_t TileRowsAt(const Step& step) const {
    const auto group = static_cast<int64_t>(ShapeAt(step).group);
    const int64_t least = TileRows(kQueryTile, group);
    if (!UsesMatrixUnit(step)) return least;
    const int64_t rows_of_items =
        q_.Rows(step) * kv_.k_new.Dim(1, step) / (kItemsPerWorker * step.workers);
    return std::clamp(rows_of_items, least, TileRows(kSplitQueryTile, group));
  }

  static bool HasPastInput(const CompileContext& context) {
    const rl_value* past = context.graph.input(context.op, operands::Attention::past);
    return past != nullptr && past->lifetime == RL_LIFETIME_INPUT;
  }

  // Whether each row of the plan's steps is wanted, and sees the rows before it.
  static bool DecodesCausally(const CompileContext& context) {
    const bool causal = context.attrs<rl_attention_attrs>().mask == RL_MASK_CAUSAL &&
                        context.graph.input(context.op, operands::Attention::q_end) == nullptr;
    const bool decodes = context.graph.max_t() == 1 ||
                         (sdk::WantsEachRow(context.graph) && sdk::DecodesBatch(context.graph));
    return causal && decodes;
  }

  [[nodiscard]] HeadShape ShapeAt(const Step& step) const {
    const size_t heads = q_.Count(1, step);
    return {heads, q_.Count(2, step), heads / kv_.k_new.Count(1, step)};
  }

  // The most cached rows of any slot. This is called before the plan runs, when only the host's
  // inputs are set: positions and slots of the wanted rows may still have to be gathered.
  [[nodiscard]] int64_t MaxPast(const Step& step) const {
    if (!past_is_input_) return 0;
    const auto* past = rows_.past.as<const int32_t>();
    return *std::max_element(past, past + rows_.past.Rows(step));
  }
  // The number of a row's keys, without its own, if the step had no other row.
  [[nodiscard]] int64_t OldKeysOf(const Step& step, int64_t row) const {
    if (!past_is_input_) return 0;
    const int64_t past = rows_.Past(rows_.q_slot.as<const int32_t>()[row]);
    if (!each_alone_) return past;
    const int64_t position = rows_.q_pos.as<const int32_t>()[row];
    return std::clamp(position, past, past + q_.Rows(step) - 1);
  }

  // Into how many parts the keys of a slot with `past` cached rows are split.
  [[nodiscard]] int64_t PartsOf(const Step& step, int64_t past) const {
    if (kv_.k_new.Dim(1, step) >= 2 * step.workers) return 1;  // heads keep the workers busy
    const int64_t keys = rows_.window > 0 ? std::min(past, rows_.window) : past;
    return std::clamp<int64_t>(keys / kMinKeysPerPart, 1, step.workers);
  }

  void RunTile(const Step& step, int worker, int64_t tile, const KeyRange& range) {
    const int64_t tile_rows = TileRowsAt(step);
    const int64_t first_row = tile * tile_rows;
    const int64_t end_row = std::min(first_row + tile_rows, q_.Rows(step));
    // Consecutive rows of one slot are processed together; a tile rarely has more than one slot.
    const auto* slots = rows_.q_slot.as<const int32_t>();
    for (int64_t row = first_row; row < end_row;) {
      int64_t stop = row + 1;
      while (!each_alone_ && stop < end_row && slots[stop] == slots[row]) ++stop;
      RunRows(step, worker, row, stop, range);
      row = stop;
    }
  }

  // Rows [begin, end), all of one slot.
  void RunRows(const Step& step, int worker, int64_t begin, int64_t end, const KeyRange& range) {
    WorkerState& state = workers_[static_cast<size_t>(worker)];
    const HeadShape shape = ShapeAt(step);
    const size_t first_index =
        static_cast<size_t>(begin) * shape.heads + range.kv_head * shape.group;
    const auto parts = static_cast<size_t>(PartsOf(step, OldKeysOf(step, begin)));
    const bool splits = parts > 1 && (range.shares_parts || end - begin == 1);
    if (!splits) {
      if (range.part > 0) return;  // other slots have more parts
      SetQueries(state, shape, begin, end, first_index,
                 [&](size_t index) { return y_.as<float>() + index * shape.dim; });
      SetSegments(step, state, begin, end, range.kv_head);
      const auto kernel = UsesMatrixUnit(step) ? kernels_.split_attention : kernels_.attention;
      kernel(ArgsOf(state, shape, end - begin));
    } else if (range.shares_parts) {
      if (range.part >= parts) return;
      SetQueries(state, shape, begin, end, first_index,
                 [&](size_t index) { return partial_.Accumulator(range.part, index); });
      SetSegments(step, state, begin, end, range.kv_head);
      KeepPart(state.segments, range.part, parts);
      RunPart(ArgsOf(state, shape, end - begin), shape, partial_, first_index, range.part);
    } else {
      for (size_t part = 0; part < parts; ++part) {
        SetQueries(state, shape, begin, end, first_index, [&](size_t index) {
          return state.partial.Accumulator(part, index - first_index);
        });
        SetSegments(step, state, begin, end, range.kv_head);
        KeepPart(state.segments, part, parts);
        RunPart(ArgsOf(state, shape, end - begin), shape, state.partial, /*first_index=*/0, part);
      }
      for (size_t g = 0; g < shape.group; ++g) {
        MergeParts(state.partial, g, parts, shape.dim,
                   y_.as<float>() + (first_index + g) * shape.dim);
      }
    }
  }

  // Sets the queries of rows [begin, end); `output_of` gives the place of a (row, head) index.
  template <typename OutputOf>
  void SetQueries(WorkerState& state, const HeadShape& shape, int64_t begin, int64_t end,
                  size_t first_index, const OutputOf& output_of) const {
    size_t count = 0;
    for (int64_t row = begin; row < end; ++row) {
      const auto [first, last] = rows_.Visible(row);
      for (size_t g = 0; g < shape.group; ++g, ++count) {
        const size_t index = first_index + static_cast<size_t>(row - begin) * shape.heads + g;
        state.queries[count] = {q_.as<const float>() + index * shape.dim, output_of(index), first,
                                last};
      }
    }
  }

  // Sets the keys that rows [begin, end) of one slot see.
  void SetSegments(const Step& step, WorkerState& state, int64_t begin, int64_t end,
                   size_t kv_head) const {
    int64_t first_visible = std::numeric_limits<int64_t>::max();
    for (int64_t row = begin; row < end; ++row) {
      first_visible = std::min(first_visible, rows_.Visible(row).first);
    }
    const int64_t slot = rows_.q_slot.as<const int32_t>()[begin];
    state.segments.clear();
    AddStateSegments(kv_, step, slot, rows_.Past(slot), first_visible, kv_head, state.segments);
    AddFreshSegments(kv_, rows_, step, slot, kv_head, state.segments);
    if (each_alone_) JoinUpTo(rows_.Visible(begin).second, state.segments);
  }

  [[nodiscard]] AttentionArgs ArgsOf(const WorkerState& state, const HeadShape& shape,
                                     int64_t rows) const {
    AttentionArgs args;
    args.segments = state.segments.data();
    args.segment_count = state.segments.size();
    args.queries = state.queries.data();
    args.query_count = static_cast<size_t>(rows) * shape.group;
    args.head_dim = shape.dim;
    args.scale = scale_;
    args.scratch = state.scratch;
    return args;
  }

  // Runs the kernel for one part of the keys and stores maxima and sums in `partial`. Query i
  // belongs to row i / group of the call; `first_index` is the (row, head) index of query 0.
  void RunPart(AttentionArgs args, const HeadShape& shape, const PartialSoftmax& partial,
               size_t first_index, size_t part) const {
    std::array<float, kMaxQueries> max;
    std::array<float, kMaxQueries> sum;
    args.partial_max = max.data();
    args.partial_sum = sum.data();
    const AttentionQuery* queries = args.queries;
    const size_t count = args.query_count;
    for (size_t done = 0; done < count; done += kMaxQueries) {
      args.queries = queries + done;
      args.query_count = std::min(kMaxQueries, count - done);
      kernels_.attention(args);
      for (size_t i = 0; i < args.query_count; ++i) {
        const size_t query = done + i;
        const size_t index = first_index + query / shape.group * shape.heads + query % shape.group;
        partial.Max(part, index) = max[i];
        partial.Sum(part, index) = sum[i];
      }
    }
  }

  const KernelTable& kernels_;
  View q_;
  KeyValue kv_;
  AttentionRows rows_;
  float scale_;
  bool past_is_input_;
  bool each_alone_;  // rows, in steps that decode
  View y_;
  PartialSoftmax partial_;
  std::vector<WorkerState> workers_;
};

class AttentionMergeNode final : public Node {
 public:
  explicit AttentionMergeNode(const AttentionNode& attention) : attention_(attention) {}
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return attention_.SplitOf(step).shares_parts ? 1 : 0;
  }
  void Run(const Step& step, int /*worker*/, int64_t /*begin*/, int64_t /*end*/) override {
    attention_.Merge(step);
  }

 private:
  const AttentionNode& attention_;
};

void CompileAttention(const CompileContext& context) {
  auto attention = std::make_unique<AttentionNode>(context);
  auto merge = std::make_unique<AttentionMergeNode>(*attention);
  context.nodes.Add(std::move(attention));
  context.nodes.Add(std::move(merge));
}

std::string RefuseAttention(const sdk::GraphView& graph, const rl_op& op,
                            const KernelTable& /*kernels*/) {
  const rl_value& keys = *graph.input(op, operands::Attention::k_new);
  for (const uint32_t operand : {operands::Attention::k_new, operands::Attention::v_new}) {
    const auto type = static_cast<DType>(graph.input(op, operand)->dtype);
    if (!sdk::IsCacheType(type)) return "keys and values of type " + std::string(NameOf(type));
  }
  if (keys.dims[2].constant % 8 != 0) return "head dim is not a multiple of 8";
  return {};
}

}  // namespace

const OpRow rows::kAttention = {RL_OP_attention, RefuseAttention, CompileAttention};

}  // namespace rullama::cpu
