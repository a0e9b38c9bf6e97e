// Rope and attention. Attention reads each key and value once for all the query heads that share
// it; with few query rows the keys are split among the workers and joined by a second node.
#include <rullama/sdk/half.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/plan.h"

namespace rullama::cpu {
namespace {

// ---- rope ---------------------------------------------------------------------------------------

class RopeNode final : public Node {
 public:
  explicit RopeNode(const CompileContext& context)
      : kernels_(context.kernels),
        x_(context.Input(0)),
        pos_(context.Input(1)),
        y_(context.Result()),
        half_(static_cast<size_t>(context.attrs<rl_rope_attrs>().n_rot) / 2) {
    // theta^(-2i / n_rot) / factor, in float64: angles reach 1e5 radians, so the rate needs more
    // than float32's 24 bits.
    const auto& a = context.attrs<rl_rope_attrs>();
    const View factors = context.Input(2);
    for (size_t i = 0; i < half_; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / a.n_rot;
      const double factor = factors.present() ? factors.as<const float>()[i] : 1.0;
      rate_.push_back(std::pow(static_cast<double>(a.theta), exponent) / factor);
    }
    for (int worker = 0; worker < context.workers; ++worker) {
      table_.push_back(
          reinterpret_cast<float*>(context.workspace.Allocate(2 * half_ * sizeof(float))));
    }
  }
  [[nodiscard]] int64_t Items(const Step& step) const override { return x_.Rows(step); }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    float* cosine = table_[static_cast<size_t>(worker)];
    float* sine = cosine + half_;
    const auto heads = static_cast<size_t>(x_.Dim(1, step));
    const auto dim = static_cast<size_t>(x_.Dim(2, step));
    for (int64_t row = begin; row < end; ++row) {
      const double position = pos_.as<const int32_t>()[row];
      for (size_t i = 0; i < half_; ++i) {
        const double angle = position * rate_[i];
        cosine[i] = static_cast<float>(std::cos(angle));
        sine[i] = static_cast<float>(std::sin(angle));
      }
      for (size_t head = 0; head < heads; ++head) {
        const size_t at = (static_cast<size_t>(row) * heads + head) * dim;
        const float* x = x_.as<const float>() + at;
        float* y = y_.as<float>() + at;
        kernels_.rope_neox(x, cosine, sine, half_, y);
        std::copy(x + 2 * half_, x + dim, y + 2 * half_);
      }
    }
  }

 private:
  const KernelTable& kernels_;
  View x_, pos_, y_;
  size_t half_;
  std::vector<double> rate_;
  std::vector<float*> table_;  // of each worker: cosines, then sines
};

// ---- what attention and its parts see -----------------------------------------------------------

struct Rows {
  View q_pos, q_slot, kv_pos, kv_slot, past;
  int32_t mask;
  int64_t window;

  // Positions a query sees of the old rows of its slot, and (with mask canvas) of all fresh rows.
  [[nodiscard]] std::pair<int64_t, int64_t> Visible(int64_t row) const {
    const int64_t pos = q_pos.as<const int32_t>()[row];
    if (mask == RL_MASK_CANVAS) {
      const int64_t old = past.as<const int32_t>()[q_slot.as<const int32_t>()[row]];
      return {window > 0 ? old - window + 1 : 0, std::numeric_limits<int64_t>::max()};
    }
    return {window > 0 ? pos - window + 1 : 0, pos};
  }
};

// A key/value pair of views: state [slots, capacity, heads, dim] and fresh rows [T, heads, dim].
struct KeyValue {
  View k_new, v_new, k_state, v_state;
};

// Appends the old rows of a slot, oldest first, from position `first` on; a ring that wraps gives
// two.
void AddStateSegments(const KeyValue& kv, const Step& step, int64_t slot, int64_t past,
                      int64_t first, size_t head, std::vector<KvSegment>& out) {
  const int64_t capacity = kv.k_state.Dim(1, step);
  const auto heads = static_cast<size_t>(kv.k_state.Dim(2, step));
  const auto dim = static_cast<size_t>(kv.k_state.Dim(3, step));
  const size_t element = InfoOf(kv.k_state.dtype).block_bytes;
  const size_t stride = heads * dim * element;
  for (int64_t position = std::max({first, past - capacity, int64_t{0}}); position < past;) {
    const int64_t at = position % capacity;
    const int64_t count = std::min(capacity - at, past - position);
    const size_t offset = static_cast<size_t>(slot * capacity + at) * stride + head * dim * element;
    out.push_back({kv.k_state.data + offset, kv.v_state.data + offset, stride, stride,
                   static_cast<size_t>(count), position, kv.k_state.dtype});
    position += count;
  }
}

// Appends the fresh rows of a slot as runs of consecutive positions.
void AddFreshSegments(const KeyValue& kv, const Rows& rows, const Step& step, int64_t slot,
                      size_t head, std::vector<KvSegment>& out) {
  const int64_t count = kv.k_new.Rows(step);
  const auto heads = static_cast<size_t>(kv.k_new.Dim(1, step));
  const auto dim = static_cast<size_t>(kv.k_new.Dim(2, step));
  const size_t element = InfoOf(kv.k_new.dtype).block_bytes;
  const size_t stride = heads * dim * element;
  const auto* pos = rows.kv_pos.as<const int32_t>();
  const auto* slots = rows.kv_slot.as<const int32_t>();
  for (int64_t i = 0; i < count; ++i) {
    if (slots[i] != slot) continue;
    const bool extends = i > 0 && slots[i - 1] == slot && pos[i] == pos[i - 1] + 1;
    if (extends) {
      ++out.back().count;
      continue;
    }
    const size_t offset = static_cast<size_t>(i) * stride + head * dim * element;
    out.push_back({kv.k_new.data + offset, kv.v_new.data + offset, stride, stride, 1, pos[i],
                   kv.k_new.dtype});
  }
}

// ---- attention ----------------------------------------------------------------------------------

// Query rows handled together in prefill: enough to reuse each converted key tile, few enough that
// the scores of all heads stay in the first-level cache.
constexpr int64_t kQueryTile = 8;
// Keys worth giving to a second worker.
constexpr int64_t kMinKeysPerPart = 64;

// The parts of one execution: with several items of queries there is one part each; otherwise the
// keys of the single item are cut into `parts` for the workers.
struct Split {
  int64_t tiles;
  int64_t kv_heads;
  int64_t parts;
};

class AttentionNode final : public Node {
 public:
  explicit AttentionNode(const CompileContext& context)
      : kernels_(context.kernels),
        q_(context.Input(0)),
        kv_{context.Input(1), context.Input(2), context.Input(3), context.Input(4)},
        rows_{context.Input(5),
              context.Input(6),
              context.Input(7),
              context.Input(8),
              context.Input(9),
              context.attrs<rl_attention_attrs>().mask,
              context.attrs<rl_attention_attrs>().window},
        scale_(context.attrs<rl_attention_attrs>().scale),
        past_is_input_(context.graph.input(context.op, 9)->lifetime == RL_LIFETIME_INPUT),
        y_(context.Result()) {
    const Step max = context.MaxStep();
    const auto heads = static_cast<size_t>(q_.Dim(1, max));
    const auto dim = static_cast<size_t>(q_.Dim(2, max));
    const auto group = heads / static_cast<size_t>(kv_.k_new.Dim(1, max));
    for (int worker = 0; worker < context.workers; ++worker) {
      scratch_.push_back(
          context.workspace.Allocate(AttentionScratchBytes(dim, kQueryTile * group)));
      segments_.emplace_back();
      segments_.back().reserve(kReservedSegments);
      queries_.emplace_back(kQueryTile * group);
    }
    const auto parts = static_cast<size_t>(context.workers);
    partial_ = reinterpret_cast<float*>(
        context.workspace.Allocate(parts * kSplitRows * heads * (dim + 2) * sizeof(float)));
  }

  [[nodiscard]] Split SplitOf(const Step& step) const {
    const int64_t rows = q_.Rows(step);
    const int64_t kv_heads = kv_.k_new.Dim(1, step);
    if (rows == 0) return {0, kv_heads, 0};
    const int64_t tiles = (rows + kQueryTile - 1) / kQueryTile;
    if (tiles * kv_heads >= 2 * step.workers || rows > kSplitRows) return {tiles, kv_heads, 1};
    const int64_t keys = MostOldKeys(step);
    const int64_t parts = std::clamp<int64_t>(keys / kMinKeysPerPart, 1, step.workers);
    return {tiles, kv_heads, parts};
  }

  [[nodiscard]] int64_t Items(const Step& step) const override {
    const Split split = SplitOf(step);
    return split.tiles * split.kv_heads * split.parts;
  }

  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const Split split = SplitOf(step);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t part = item % split.parts;
      const int64_t head = item / split.parts % split.kv_heads;
      const int64_t tile = item / (split.parts * split.kv_heads);
      RunTile(step, worker, tile, head, part, split.parts);
    }
  }

  // Joins the parts of row `row`, head `head`.
  void Merge(const Step& step, int64_t row, int64_t head) const {
    const auto heads = static_cast<size_t>(q_.Dim(1, step));
    const auto dim = static_cast<size_t>(q_.Dim(2, step));
    const Split split = SplitOf(step);
    if (split.parts <= 1) return;
    const size_t index = static_cast<size_t>(row) * heads + static_cast<size_t>(head);
    const size_t part_stride = kSplitRows * heads * (dim + 2);
    std::array<float, kMaxParts> max{};
    std::array<float, kMaxParts> sum{};
    const auto parts = std::min(static_cast<size_t>(split.parts), kMaxParts);
    for (size_t part = 0; part < parts; ++part) {
      const float* base = partial_ + part * part_stride + kSplitRows * heads * dim;
      max[part] = base[index];
      sum[part] = base[kSplitRows * heads + index];
    }
    AttentionMerge(partial_ + index * dim, part_stride, max.data(), sum.data(), parts, dim,
                   y_.as<float>() + index * dim);
  }

  [[nodiscard]] const View& q() const { return q_; }

 private:
  static constexpr size_t kReservedSegments = 64;
  static constexpr int64_t kSplitRows = kQueryTile;  // rows that may be split over keys
  static constexpr size_t kMaxParts = 256;           // more workers than that share parts

  // An upper bound of the old keys any row sees. It is asked before the plan runs, when only the
  // host's inputs are there: positions and slots of the wanted rows may still have to be gathered.
  [[nodiscard]] int64_t MostOldKeys(const Step& step) const {
    if (!past_is_input_) return 0;
    const auto* past = rows_.past.as<const int32_t>();
    const int64_t most = *std::max_element(past, past + rows_.past.Rows(step));
    return rows_.window > 0 ? std::min(most, rows_.window) : most;
  }

  void RunTile(const Step& step, int worker, int64_t tile, int64_t kv_head, int64_t part,
               int64_t parts) {
    const int64_t first_row = tile * kQueryTile;
    const int64_t end_row = std::min(first_row + kQueryTile, q_.Rows(step));
    // Rows of one slot go together; a tile rarely has more than one.
    for (int64_t row = first_row; row < end_row;) {
      const int32_t slot = rows_.q_slot.as<const int32_t>()[row];
      int64_t stop = row + 1;
      while (stop < end_row && rows_.q_slot.as<const int32_t>()[stop] == slot) ++stop;
      RunRows(step, worker, row, stop, slot, static_cast<size_t>(kv_head), part, parts);
      row = stop;
    }
  }

  void RunRows(const Step& step, int worker, int64_t begin, int64_t end, int64_t slot,
               size_t kv_head, int64_t part, int64_t parts) {
    const auto heads = static_cast<size_t>(q_.Dim(1, step));
    const auto dim = static_cast<size_t>(q_.Dim(2, step));
    const size_t group = heads / static_cast<size_t>(kv_.k_new.Dim(1, step));
    auto& queries = queries_[static_cast<size_t>(worker)];
    size_t count = 0;
    int64_t first_visible = std::numeric_limits<int64_t>::max();
    for (int64_t row = begin; row < end; ++row) {
      const auto [first, last] = rows_.Visible(row);
      first_visible = std::min(first_visible, first);
      for (size_t g = 0; g < group; ++g) {
        const size_t index = static_cast<size_t>(row) * heads + kv_head * group + g;
        float* out = parts > 1 ? PartialRow(part, index, heads, dim) : y_.as<float>() + index * dim;
        queries[count++] = {q_.as<const float>() + index * dim, out, first, last};
      }
    }
    auto& segments = segments_[static_cast<size_t>(worker)];
    segments.clear();
    AddStateSegments(kv_, step, slot, rows_.past.as<const int32_t>()[slot], first_visible, kv_head,
                     segments);
    AddFreshSegments(kv_, rows_, step, slot, kv_head, segments);
    if (parts > 1) TakePart(segments, part, parts);

    AttentionArgs args;
    args.segments = segments.data();
    args.segment_count = segments.size();
    args.queries = queries.data();
    args.query_count = count;
    args.head_dim = dim;
    args.scale = scale_;
    args.scratch = scratch_[static_cast<size_t>(worker)];
    std::array<float, 2 * kMaxQueries> extremes;  // partial maxima, then sums
    if (parts == 1) {
      kernels_.attention(args);
      return;
    }
    // The kernel writes maxima and sums densely per query; scatter them to their rows.
    args.partial_max = extremes.data();
    args.partial_sum = extremes.data() + kMaxQueries;
    for (size_t done = 0; done < count; done += kMaxQueries) {
      args.queries = queries.data() + done;
      args.query_count = std::min(kMaxQueries, count - done);
      kernels_.attention(args);
      for (size_t i = 0; i < args.query_count; ++i) {
        const auto row = static_cast<size_t>(begin) + (done + i) / group;
        const size_t index = row * heads + kv_head * group + (done + i) % group;
        float* base = PartialRow(part, 0, heads, dim) + kSplitRows * heads * dim;
        base[index] = args.partial_max[i];
        base[kSplitRows * heads + index] = args.partial_sum[i];
      }
    }
  }

  static constexpr size_t kMaxQueries = 64;

  [[nodiscard]] float* PartialRow(int64_t part, size_t index, size_t heads, size_t dim) const {
    return partial_ + static_cast<size_t>(part) * kSplitRows * heads * (dim + 2) + index * dim;
  }

  // Keeps the keys of part `part` of `parts`, cut at multiples of the kernel's tile.
  static void TakePart(std::vector<KvSegment>& segments, int64_t part, int64_t parts) {
    int64_t total = 0;
    for (const KvSegment& segment : segments) total += static_cast<int64_t>(segment.count);
    constexpr auto kTile = static_cast<int64_t>(kAttentionTile);
    const int64_t tiles = (total + kTile - 1) / kTile;
    const int64_t begin = tiles * part / parts * kTile;
    const int64_t end = std::min(tiles * (part + 1) / parts * kTile, total);
    int64_t at = 0;
    for (KvSegment& segment : segments) {
      const auto size = static_cast<int64_t>(segment.count);
      const int64_t from = std::clamp<int64_t>(begin - at, 0, size);
      const int64_t to = std::clamp<int64_t>(end - at, from, size);
      at += size;
      segment.keys = static_cast<const std::byte*>(segment.keys) +
                     static_cast<size_t>(from) * segment.key_stride;
      segment.values = static_cast<const std::byte*>(segment.values) +
                       static_cast<size_t>(from) * segment.value_stride;
      segment.first_position += from;
      segment.count = static_cast<size_t>(to - from);
    }
    std::erase_if(segments, [](const KvSegment& segment) { return segment.count == 0; });
  }

  const KernelTable& kernels_;
  View q_;
  KeyValue kv_;
  Rows rows_;
  float scale_;
  bool past_is_input_;
  View y_;
  std::vector<std::byte*> scratch_;               // of each worker
  std::vector<std::vector<KvSegment>> segments_;  // of each worker
  std::vector<std::vector<AttentionQuery>> queries_;
  float* partial_ = nullptr;  // for each part: [rows, heads, dim], maxima, sums
};

class AttentionMergeNode final : public Node {
 public:
  explicit AttentionMergeNode(const AttentionNode& attention) : attention_(attention) {}
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return attention_.SplitOf(step).parts > 1 ? 1 : 0;
  }
  void Run(const Step& step, int /*worker*/, int64_t /*begin*/, int64_t /*end*/) override {
    for (int64_t row = 0; row < attention_.q().Rows(step); ++row) {
      for (int64_t head = 0; head < attention_.q().Dim(1, step); ++head) {
        attention_.Merge(step, row, head);
      }
    }
  }

 private:
  const AttentionNode& attention_;
};

// ---- the decomposed form ------------------------------------------------------------------------

float LoadFloat(const View& view, size_t index) {
  switch (view.dtype) {
    case DType::kF16:
      return HalfToFloat(view.as<const uint16_t>()[index]);
    case DType::kBF16:
      return BFloat16ToFloat(view.as<const uint16_t>()[index]);
    default:
      return view.as<const float>()[index];
  }
}

class AttentionScoresNode final : public Node {
 public:
  explicit AttentionScoresNode(const CompileContext& context)
      : q_(context.Input(0)),
        k_new_(context.Input(1)),
        k_state_(context.Input(2)),
        rows_{context.Input(3),
              context.Input(4),
              context.Input(5),
              context.Input(6),
              context.Input(7),
              context.attrs<rl_attention_scores_attrs>().mask,
              context.attrs<rl_attention_scores_attrs>().window},
        scale_(context.attrs<rl_attention_scores_attrs>().scale),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return q_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t heads = q_.Dim(1, step);
    const int64_t columns = y_.Last(step);
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = 0; head < heads; ++head) {
        float* y = y_.as<float>() + (row * heads + head) * columns;
        std::fill_n(y, columns, -std::numeric_limits<float>::infinity());
        ScoreState(step, row, head, y);
        ScoreFresh(step, row, head, y + k_state_.Dim(1, step));
      }
    }
  }

 private:
  [[nodiscard]] float Score(const Step& step, int64_t row, int64_t head, const View& keys,
                            int64_t key_row) const {
    const int64_t heads = q_.Dim(1, step);
    const int64_t kv_heads = k_new_.Dim(1, step);
    const auto dim = static_cast<size_t>(q_.Dim(2, step));
    const float* q = q_.as<const float>() + static_cast<size_t>(row * heads + head) * dim;
    const size_t at = static_cast<size_t>(key_row * kv_heads + head / (heads / kv_heads)) * dim;
    float sum = 0;
    for (size_t i = 0; i < dim; ++i) sum += q[i] * LoadFloat(keys, at + i);
    return sum * scale_;
  }
  void ScoreState(const Step& step, int64_t row, int64_t head, float* y) const {
    const int64_t slot = rows_.q_slot.as<const int32_t>()[row];
    const int64_t past = rows_.past.as<const int32_t>()[slot];
    const int64_t capacity = k_state_.Dim(1, step);
    const auto [first, last] = rows_.Visible(row);
    for (int64_t p = std::max({first, past - capacity, int64_t{0}}); p < past && p <= last; ++p) {
      y[p % capacity] = Score(step, row, head, k_state_, slot * capacity + p % capacity);
    }
  }
  void ScoreFresh(const Step& step, int64_t row, int64_t head, float* y) const {
    const auto [first, last] = rows_.Visible(row);
    const bool canvas = rows_.mask == RL_MASK_CANVAS;
    for (int64_t i = 0; i < k_new_.Rows(step); ++i) {
      if (rows_.kv_slot.as<const int32_t>()[i] != rows_.q_slot.as<const int32_t>()[row]) continue;
      const int64_t p = rows_.kv_pos.as<const int32_t>()[i];
      if (canvas || (p >= first && p <= last)) y[i] = Score(step, row, head, k_new_, i);
    }
  }

  View q_, k_new_, k_state_;
  Rows rows_;
  float scale_;
  View y_;
};

class AttentionMixNode final : public Node {
 public:
  explicit AttentionMixNode(const CompileContext& context)
      : p_(context.Input(0)),
        v_new_(context.Input(1)),
        v_state_(context.Input(2)),
        q_slot_(context.Input(3)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return p_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t heads = p_.Dim(1, step);
    const int64_t kv_heads = v_new_.Dim(1, step);
    const int64_t dim = y_.Last(step);
    const int64_t capacity = v_state_.Dim(1, step);
    const int64_t columns = p_.Last(step);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t slot = q_slot_.as<const int32_t>()[row];
      for (int64_t head = 0; head < heads; ++head) {
        float* y = y_.as<float>() + (row * heads + head) * dim;
        const float* p = p_.as<const float>() + (row * heads + head) * columns;
        std::fill_n(y, dim, 0.0f);
        for (int64_t c = 0; c < columns; ++c) {
          if (p[c] == 0) continue;
          const bool fresh = c >= capacity;
          const View& values = fresh ? v_new_ : v_state_;
          const int64_t value_row = fresh ? c - capacity : slot * capacity + c;
          const auto at =
              static_cast<size_t>((value_row * kv_heads + head / (heads / kv_heads)) * dim);
          for (int64_t i = 0; i < dim; ++i) {
            y[i] += p[c] * LoadFloat(values, at + static_cast<size_t>(i));
          }
        }
      }
    }
  }

 private:
  View p_, v_new_, v_state_, q_slot_, y_;
};

}  // namespace

bool CompileAttention(const CompileContext& context) {
  switch (context.op.kind) {
    case RL_OP_rope:
      context.nodes.Add(std::make_unique<RopeNode>(context));
      return true;
    case RL_OP_attention: {
      auto attention = std::make_unique<AttentionNode>(context);
      auto merge = std::make_unique<AttentionMergeNode>(*attention);
      context.nodes.Add(std::move(attention));
      context.nodes.Add(std::move(merge));
      return true;
    }
    case RL_OP_attention_scores:
      context.nodes.Add(std::make_unique<AttentionScoresNode>(context));
      return true;
    case RL_OP_attention_mix:
      context.nodes.Add(std::make_unique<AttentionMixNode>(context));
      return true;
    default:
      return false;
  }
}

}  // namespace rullama::cpu
