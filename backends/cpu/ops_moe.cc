// Mixture of experts: products with the experts that the router chose for each row. The pairs of
// row and expert are sorted by expert, so that the weights of an expert are read once for all its
// rows. Experts without rows are not read, so their pages need not be in memory.
#include <rullama/sdk/slots.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "backends/cpu/kernels/gemm_blocks.h"
#include "backends/cpu/op_rows.h"

namespace rullama::cpu {
namespace {

// The (row, expert) pairs of a step sorted by expert. Pair i belongs to row i / chosen. Filled by
// RouteNode, read by the later nodes of the op.
struct ExpertRouting {
  int64_t experts = 0;
  int64_t chosen = 0;               // experts per row
  int32_t* first = nullptr;         // [experts + 1]: sorted index of each expert's first pair
  int32_t* sorted_index = nullptr;  // [pairs]: index of each pair in the sorted order
  int32_t* used = nullptr;          // [used_count]: the experts that have pairs
  int64_t used_count = 0;

  // The largest possible number of used experts in a step with this many pairs.
  [[nodiscard]] int64_t MaxUsed(int64_t pairs) const { return std::min(experts, pairs); }
  [[nodiscard]] int64_t Count(int64_t expert) const { return first[expert + 1] - first[expert]; }
  // The average share of one expert of a value whose rows belong to `pairs_per_row` pairs each.
  [[nodiscard]] RowShare ShareOf(int64_t pairs_per_row) const { return {pairs_per_row, experts}; }
};

int32_t* AllocateInts(const CompileContext& context, int64_t count) {
  return reinterpret_cast<int32_t*>(
      context.workspace.Allocate(static_cast<uint64_t>(count) * sizeof(int32_t)));
}

// Sorts the pairs by expert (counting sort).
class RouteNode final : public Node {
 public:
  RouteNode(const View& chosen, std::shared_ptr<ExpertRouting> routing)
      : chosen_(chosen), routing_(std::move(routing)) {}
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return chosen_.Rows(step) > 0 ? 1 : 0;
  }
  void Run(const Step& step, int /*worker*/, int64_t /*begin*/, int64_t /*end*/) override {
    ExpertRouting& g = *routing_;
    const auto* expert = chosen_.as<const int32_t>();
    const int64_t pairs = chosen_.Elements(step);
    std::fill_n(g.first, g.experts + 1, 0);
    g.used_count = 0;
    for (int64_t i = 0; i < pairs; ++i) {
      if (expert[i] < 0 || expert[i] >= g.experts) {
        std::fill_n(g.first, g.experts + 1, 0);
        // Later nodes still run and read the sorted indices.
        std::fill_n(g.sorted_index, pairs, 0);
        Fail("row " + std::to_string(i / g.chosen) + " asks for expert " +
             std::to_string(expert[i]) + " of " + std::to_string(g.experts));
        return;
      }
      ++g.first[expert[i] + 1];
    }
    for (int64_t e = 0; e < g.experts; ++e) {
      if (g.first[e + 1] > 0) g.used[g.used_count++] = static_cast<int32_t>(e);
      g.first[e + 1] += g.first[e];
    }
    // Placing the pairs advances first[e] to the end of e's pairs, where those of e + 1 begin. The
    // shift by one below restores the starts.
    for (int64_t i = 0; i < pairs; ++i) {
      g.sorted_index[i] = g.first[expert[i]]++;
    }
    for (int64_t e = g.experts; e > 0; --e) g.first[e] = g.first[e - 1];
    g.first[0] = 0;
  }

 private:
  View chosen_;
  std::shared_ptr<ExpertRouting> routing_;
};

// Copies rows for products to the sorted order: pair i reads source row i / pairs_per_row.
class SortRowsNode final : public Node {
 public:
  SortRowsNode(const View& chosen, std::shared_ptr<ExpertRouting> routing, const ProductRows& from,
               int64_t pairs_per_row, std::byte* to)
      : chosen_(chosen),
        routing_(std::move(routing)),
        from_(from),
        pairs_per_row_(pairs_per_row),
        to_(to) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return chosen_.Elements(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const int64_t rows = chosen_.Elements(step) / pairs_per_row_;
    const size_t bytes = from_.StrideAt(rows);
    const std::byte* from = from_.DataAt(rows);
    for (int64_t pair = begin; pair < end; ++pair) {
      std::memcpy(to_ + static_cast<size_t>(routing_->sorted_index[pair]) * bytes,
                  from + static_cast<size_t>(pair / pairs_per_row_) * bytes, bytes);
    }
  }

 private:
  View chosen_;
  std::shared_ptr<ExpertRouting> routing_;
  ProductRows from_;
  int64_t pairs_per_row_;
  std::byte* to_;
};

// y[i] = x[i] . W[expert of pair i] over sorted pairs i, with rows [first_row, first_row + n) of
// each expert's matrix. Items are (used expert, block of weight rows). In a prompt their cost
// depends on the number of the expert's rows in x, which ranges from one to all of them.
class ExpertProductNode : public Node {
 public:
  // The rows of each expert's matrix to multiply with.
  struct Shape {
    int64_t first_row = 0;
    int64_t n = 0;
  };
  // `x`: sorted rows.
  ExpertProductNode(const CompileContext& context, const View& chosen, const View& weight,
                    Shape shape, std::shared_ptr<ExpertRouting> routing, const ProductRows& x,
                    int64_t max_pairs, float* y)
      : kernels_(context.kernels),
        chosen_(chosen),
        weight_(weight),
        shape_(shape),
        routing_(std::move(routing)),
        k_(static_cast<size_t>(weight.dims[2].constant)),
        x_(x),
        y_(y) {
    // The format and stride of x depend on the average number of pairs per expert. The batch size
    // is the number of pairs of one expert, which may be all of them.
    const size_t bytes =
        MatMulScratchBytes(kernels_, weight.dtype, k_, static_cast<size_t>(max_pairs));
    for (int worker = 0; worker < context.workers; ++worker) {
      scratch_.push_back(context.workspace.AllocateForOp(bytes));
    }
  }
  // An upper bound, because Items() is asked before the step is routed.
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return routing_->MaxUsed(chosen_.Elements(step)) * Blocks();
  }
  // Each row has `chosen` experts, and other rows may have the same ones. With few rows an item
  // costs what reading its weights takes, however many of them its expert has.
  [[nodiscard]] int64_t EvenItems(const Step& step, int64_t /*items*/) const override {
    return chosen_.Rows(step) <= sdk::kFewRows ? routing_->chosen * Blocks() : 1;
  }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    MatMulArgs x;
    x_.Describe(chosen_.Elements(step), x);
    for (int64_t item = begin; item < end;) {
      const int64_t index = item / Blocks();
      if (index >= routing_->used_count) return;
      const int64_t first = item % Blocks(), count = std::min(end - item, Blocks() - first);
      RunBlocks(routing_->used[index], first, count, x, worker);
      item += count;
    }
  }

 private:
  [[nodiscard]] int64_t Blocks() const {
    constexpr auto kRows = static_cast<int64_t>(kBlockRows);
    return (shape_.n + kRows - 1) / kRows;
  }

  // Blocks [block, block + count) of an expert, which follow one another in memory. `a` describes
  // all sorted rows.
  void RunBlocks(int64_t expert, int64_t block, int64_t count, MatMulArgs a, int worker) {
    const auto n = static_cast<size_t>(shape_.n);
    const auto first = static_cast<size_t>(routing_->first[expert]);
    a.packed = weight_.packed;
    a.row_bytes = static_cast<size_t>(RowBytes(weight_.dtype, k_));
    const int64_t first_row = expert * weight_.dims[1].constant + shape_.first_row;
    a.weights = weight_.data + static_cast<size_t>(first_row) * a.row_bytes;
    a.x = static_cast<const std::byte*>(a.x) + first * a.x_stride;
    a.batch = static_cast<size_t>(routing_->Count(expert));
    a.y = y_ + first * n;
    a.y_stride = n;
    a.n_begin = static_cast<size_t>(block) * kBlockRows;
    a.n_end = std::min(a.n_begin + static_cast<size_t>(count) * kBlockRows, n);
    a.scratch = scratch_[static_cast<size_t>(worker)];
    MatMul(kernels_, weight_.dtype, a);
  }

  const KernelTable& kernels_;
  View chosen_;
  View weight_;
  Shape shape_;
  std::shared_ptr<ExpertRouting> routing_;
  size_t k_;
  ProductRows x_;
  float* y_;
  std::vector<std::byte*> scratch_;
};

// Adds the nodes of one op of this file to the plan.
class ExpertBuilder {
 public:
  ExpertBuilder(const CompileContext& context, const View& chosen, int64_t experts)
      : context_(context), chosen_(chosen), routing_(std::make_shared<ExpertRouting>()) {
    max_pairs_ = chosen.Elements(context.MaxStep());
    routing_->experts = experts;
    routing_->chosen = chosen.dims[1].constant;
    routing_->first = AllocateInts(context, experts + 1);
    routing_->sorted_index = AllocateInts(context, max_pairs_);
    routing_->used = AllocateInts(context, routing_->MaxUsed(max_pairs_));
    context.nodes.Add(std::make_unique<RouteNode>(chosen, routing_));
  }

  [[nodiscard]] const std::shared_ptr<ExpertRouting>& routing() const { return routing_; }
  [[nodiscard]] int64_t max_pairs() const { return max_pairs_; }

  [[nodiscard]] float* AllocateRows(int64_t width) const {
    return reinterpret_cast<float*>(context_.workspace.AllocateForOp(
        static_cast<uint64_t>(max_pairs_ * width) * sizeof(float)));
  }

  // Converts the rows of x to the format that products with this weight type read and sorts them by
  // expert. Each row of x belongs to `pairs_per_row` pairs.
  [[nodiscard]] ProductRows SortRows(const View& x, DType weight, int64_t pairs_per_row) const {
    const ProductRows from =
        context_.nodes.Activations(context_, x, weight, routing_->ShareOf(pairs_per_row));
    // In steps with fewer rows, a row has the same length or is shorter.
    const size_t bytes = from.StrideAt(x.Rows(context_.MaxStep()));
    std::byte* to = context_.workspace.AllocateForOp(static_cast<uint64_t>(max_pairs_) * bytes);
    context_.nodes.Add(std::make_unique<SortRowsNode>(chosen_, routing_, from, pairs_per_row, to));
    const auto k = static_cast<size_t>(x.Last(context_.MaxStep()));
    return {context_, weight, k, routing_->ShareOf(1), to, to};
  }

  // Converts activations [pairs, width] that are already sorted.
  [[nodiscard]] ProductRows Convert(float* rows, int64_t width, DType weight) const {
    View view;
    view.data = reinterpret_cast<std::byte*>(rows);
    view.rank = 2;
    view.dims[0] = chosen_.dims[0];
    view.dims[0].constant *= routing_->chosen;
    view.dims[0].t *= static_cast<int32_t>(routing_->chosen);
    view.dims[0].r *= static_cast<int32_t>(routing_->chosen);
    view.dims[1].constant = width;
    return context_.nodes.ActivationsOnce(context_, view, weight, routing_->ShareOf(1));
  }

  void Product(const View& weight, ExpertProductNode::Shape shape, const ProductRows& x,
               float* y) const {
    context_.nodes.Add(std::make_unique<ExpertProductNode>(context_, chosen_, weight, shape,
                                                           routing_, x, max_pairs_, y));
  }

 private:
  const CompileContext& context_;
  View chosen_;
  std::shared_ptr<ExpertRouting> routing_;
  int64_t max_pairs_ = 0;
};

// Copies results from the sorted order back to the order of pairs.
class ScatterByExpertNode final : public Node {
 public:
  ScatterByExpertNode(std::shared_ptr<ExpertRouting> routing, const float* from, const View& y)
      : routing_(std::move(routing)), from_(from), y_(y) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const auto width = static_cast<size_t>(y_.Last(step));
    for (int64_t pair = begin * routing_->chosen; pair < end * routing_->chosen; ++pair) {
      const auto index = static_cast<size_t>(routing_->sorted_index[pair]);
      std::copy_n(from_ + index * width, width, y_.as<float>() + static_cast<size_t>(pair) * width);
    }
  }

 private:
  std::shared_ptr<ExpertRouting> routing_;
  const float* from_;
  View y_;
};

// gate = gelu(gate) * up for every sorted pair.
class ExpertGluNode final : public Node {
 public:
  ExpertGluNode(const KernelTable& kernels, const View& chosen, float* gate, const float* up,
                int64_t width)
      : kernels_(kernels),
        chosen_(chosen),
        gate_(gate),
        up_(up),
        width_(static_cast<size_t>(width)) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return chosen_.Elements(step); }
  void Run(const Step& /*step*/, int /*worker*/, int64_t begin, int64_t end) override {
    const size_t from = static_cast<size_t>(begin) * width_;
    kernels_.geglu(gate_ + from, up_ + from, static_cast<size_t>(end - begin) * width_,
                   gate_ + from);
  }

 private:
  const KernelTable& kernels_;
  View chosen_;
  float* gate_;
  const float* up_;
  size_t width_;
};

// y[row] = sum over the row's pairs of router weight * expert scale * result of the expert.
class CombineNode final : public Node {
 public:
  CombineNode(const CompileContext& context, std::shared_ptr<ExpertRouting> routing,
              const float* from)
      : kernels_(context.kernels),
        routing_(std::move(routing)),
        from_(from),
        weights_(context.Input(operands::MoeFfn::weights)),
        chosen_(context.Input(operands::MoeFfn::experts)),
        scale_(context.Input(operands::MoeFfn::expert_scale)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const auto width = static_cast<size_t>(y_.Last(step));
    for (int64_t row = begin; row < end; ++row) {
      float* y = y_.as<float>() + static_cast<size_t>(row) * width;
      std::fill_n(y, width, 0.0f);
      for (int64_t j = 0; j < routing_->chosen; ++j) {
        const int64_t pair = row * routing_->chosen + j;
        float weight = weights_.as<const float>()[pair];
        const int32_t expert = chosen_.as<const int32_t>()[pair];
        const bool exists = expert >= 0 && expert < routing_->experts;
        if (scale_.present() && exists) weight *= scale_.as<const float>()[expert];
        const auto index = static_cast<size_t>(routing_->sorted_index[pair]);
        kernels_.axpy(weight, from_ + index * width, width, y);
      }
    }
  }

 private:
  const KernelTable& kernels_;
  std::shared_ptr<ExpertRouting> routing_;
  const float* from_;
  View weights_, chosen_, scale_, y_;
};

// y[pair] = x of the pair times the matrix [m, n] of its expert as it is stored. An item is a span
// of columns; of each expert that has pairs, a few rows are dequantised at a time for all of them.
class GroupedAsStoredNode final : public Node {
 public:
  GroupedAsStoredNode(const CompileContext& context, std::shared_ptr<ExpertRouting> routing)
      : kernels_(context.kernels),
        routing_(std::move(routing)),
        x_(context.Input(operands::GroupedMatMul::x)),
        weight_(context.Input(operands::GroupedMatMul::weight)),
        chosen_(context.Input(operands::GroupedMatMul::experts)),
        y_(context.Result()),
        weight_kernels_(*FindWeight(context.kernels, weight_.dtype)) {
    for (int worker = 0; worker < context.workers; ++worker) {
      rows_.push_back(reinterpret_cast<float*>(
          context.workspace.AllocateForOp(kDepth * kSpan * sizeof(float))));
    }
  }

  [[nodiscard]] int64_t Items(const Step& step) const override {
    return chosen_.Rows(step) == 0 ? 0 : (weight_.Last(step) + kSpan - 1) / kSpan;
  }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    for (int64_t span = begin; span < end; ++span) {
      RunSpan(step, span * kSpan, rows_[static_cast<size_t>(worker)]);
    }
  }

 private:
  static constexpr int64_t kSpan = 256;  // a multiple of every block length
  static constexpr int64_t kDepth = 16;  // rows that are dequantised together: 16 KiB

  void RunSpan(const Step& step, int64_t first, float* rows) const {
    const int64_t m = weight_.Dim(1, step);
    const int64_t n = weight_.Last(step);
    const int64_t pairs = chosen_.Elements(step);
    const int64_t pairs_per_row = x_.rank == 3 ? 1 : routing_->chosen;
    const auto count = static_cast<size_t>(std::min(kSpan, n - first));
    for (int64_t pair = 0; pair < pairs; ++pair) {
      std::fill_n(y_.as<float>() + pair * n + first, count, 0.0f);
    }
    for (int64_t u = 0; u < routing_->used_count; ++u) {
      const int32_t expert = routing_->used[u];
      for (int64_t i = 0; i < m; i += kDepth) {
        const int64_t depth = std::min(kDepth, m - i);
        for (int64_t d = 0; d < depth; ++d) {
          ReadRow(weight_kernels_, weight_.dtype,
                  {weight_.data, weight_.packed, static_cast<size_t>(n),
                   static_cast<size_t>(expert * m + i + d)},
                  static_cast<size_t>(first), count, rows + d * kSpan);
        }
        for (int64_t pair = 0; pair < pairs; ++pair) {
          if (chosen_.as<const int32_t>()[pair] != expert) continue;
          kernels_.add_weighted_rows(
              {.factors = x_.as<const float>() + pair / pairs_per_row * m + i,
               .rows = rows,
               .row_stride = kSpan,
               .count = static_cast<size_t>(depth),
               .columns = count,
               .y = y_.as<float>() + pair * n + first});
        }
      }
    }
  }

  const KernelTable& kernels_;
  std::shared_ptr<ExpertRouting> routing_;
  View x_, weight_, chosen_, y_;
  const WeightKernels& weight_kernels_;
  std::vector<float*> rows_;  // by worker
};

void CompileGroupedMatMul(const CompileContext& context) {
  const View x = context.Input(operands::GroupedMatMul::x);
  const View weight = context.Input(operands::GroupedMatMul::weight);
  const View chosen = context.Input(operands::GroupedMatMul::experts);
  const ExpertBuilder builder(context, chosen, weight.dims[0].constant);
  if (context.attrs<rl_grouped_matmul_attrs>().as_stored != 0) {
    context.nodes.Add(std::make_unique<GroupedAsStoredNode>(context, builder.routing()));
    return;
  }
  const int64_t n = weight.dims[1].constant;
  // An x of rank 3 has one row per pair: flatten the first two dimensions.
  View rows = x;
  const int64_t pairs_per_row = x.rank == 3 ? 1 : chosen.dims[1].constant;
  if (x.rank == 3) {
    rows.rank = 2;
    rows.dims[0].constant *= x.dims[1].constant;
    rows.dims[0].t *= static_cast<int32_t>(x.dims[1].constant);
    rows.dims[0].r *= static_cast<int32_t>(x.dims[1].constant);
    rows.dims[1] = x.dims[2];
  }
  float* y = builder.AllocateRows(n);
  builder.Product(weight, {0, n}, builder.SortRows(rows, weight.dtype, pairs_per_row), y);
  context.nodes.Add(std::make_unique<ScatterByExpertNode>(builder.routing(), y, context.Result()));
}

void CompileMoeFfn(const CompileContext& context) {
  const View x = context.Input(operands::MoeFfn::x);
  const View chosen = context.Input(operands::MoeFfn::experts);
  const View gate = context.Input(operands::MoeFfn::gate_weight);
  const View up = context.Input(operands::MoeFfn::up_weight);
  const View down = context.Input(operands::MoeFfn::down_weight);
  const ExpertBuilder builder(context, chosen, gate.dims[0].constant);
  const int64_t inner = down.dims[2].constant;
  const int64_t pairs_per_row = chosen.dims[1].constant;
  const ProductRows sorted = builder.SortRows(x, gate.dtype, pairs_per_row);
  float* hidden = builder.AllocateRows(inner);
  float* up_rows = builder.AllocateRows(inner);
  builder.Product(gate, {0, inner}, sorted, hidden);
  if (up.present()) {
    const bool same_rows = ReadSameRows(context.kernels, up.dtype, gate.dtype);
    builder.Product(up, {0, inner},
                    same_rows ? sorted : builder.SortRows(x, up.dtype, pairs_per_row), up_rows);
  } else {
    builder.Product(gate, {inner, inner}, sorted, up_rows);
  }
  context.nodes.Add(
      std::make_unique<ExpertGluNode>(context.kernels, chosen, hidden, up_rows, inner));
  const ProductRows activated = builder.Convert(hidden, inner, down.dtype);
  float* results = builder.AllocateRows(x.dims[1].constant);
  builder.Product(down, {0, x.dims[1].constant}, activated, results);
  context.nodes.Add(std::make_unique<CombineNode>(context, builder.routing(), results));
}

}  // namespace

const OpRow rows::kGroupedMatMul = {RL_OP_grouped_matmul, RefuseWeights, CompileGroupedMatMul};
const OpRow rows::kMoeFfn = {RL_OP_moe_ffn, RefuseWeights, CompileMoeFfn};

}  // namespace rullama::cpu
