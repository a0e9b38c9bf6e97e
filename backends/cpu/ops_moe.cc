// Products with the experts that rows have chosen. Pairs of row and expert are sorted by expert, so
// that each weight of a chosen expert is read once for all its rows; other experts are not touched,
// which leaves their pages on the disk.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "backends/cpu/plan.h"

namespace rullama::cpu {
namespace {

// The pairs of a step, row by row, and their places sorted by expert.
struct Grouping {
  int64_t experts = 0;
  int64_t chosen = 0;        // experts of each row
  int32_t* first = nullptr;  // [experts + 1]: where each expert's pairs begin
  int32_t* place = nullptr;  // of each pair
  int32_t* used = nullptr;   // [used_count]: the experts that have pairs
  int64_t used_count = 0;

  // The most experts that a step with so many pairs can use.
  [[nodiscard]] int64_t MaxUsed(int64_t pairs) const { return std::min(experts, pairs); }
  [[nodiscard]] int64_t Count(int64_t expert) const { return first[expert + 1] - first[expert]; }
  // What an expert multiplies of rows that have so many pairs each.
  [[nodiscard]] RowShare ShareOf(int64_t pairs_per_row) const { return {pairs_per_row, experts}; }
  // The form of sorted rows in a step with so many pairs.
  [[nodiscard]] ActivationForm FormOf(const KernelTable& kernels, int64_t pairs) const {
    return FormFor(kernels, ShareOf(1).Of(pairs));
  }
};

// Rows as products with a weight read them.
struct ProductRows {
  const KernelTable& kernels;
  DType weight;
  size_t k;
  int planes;
  [[nodiscard]] size_t Bytes(ActivationForm form) const {
    return UsesActivationRows(weight) ? ActivationRowBytes(form, k, planes) : k * sizeof(float);
  }
};

int32_t* AllocateInts(const CompileContext& context, int64_t count) {
  return reinterpret_cast<int32_t*>(
      context.workspace.Allocate(static_cast<uint64_t>(count) * sizeof(int32_t)));
}

// Counting sort of the chosen experts.
class GroupNode final : public Node {
 public:
  GroupNode(const View& chosen, std::shared_ptr<Grouping> grouping)
      : chosen_(chosen), grouping_(std::move(grouping)) {}
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return chosen_.Rows(step) > 0 ? 1 : 0;
  }
  void Run(const Step& step, int /*worker*/, int64_t /*begin*/, int64_t /*end*/) override {
    Grouping& g = *grouping_;
    const auto* expert = chosen_.as<const int32_t>();
    const int64_t pairs = chosen_.Elements(step);
    std::fill_n(g.first, g.experts + 1, 0);
    g.used_count = 0;
    for (int64_t i = 0; i < pairs; ++i) {
      if (expert[i] < 0 || expert[i] >= g.experts) {
        std::fill_n(g.first, g.experts + 1, 0);
        // Later nodes read places whatever happened here.
        std::fill_n(g.place, pairs, 0);
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
    // first[e] moves to the end of e's pairs, which is where e + 1 begins; then all move back by
    // one.
    for (int64_t i = 0; i < pairs; ++i) {
      g.place[i] = g.first[expert[i]]++;
    }
    for (int64_t e = g.experts; e > 0; --e) g.first[e] = g.first[e - 1];
    g.first[0] = 0;
  }

 private:
  View chosen_;
  std::shared_ptr<Grouping> grouping_;
};

// Rows of activations in the order of their places: row place / pairs_per_row of the source.
class SortRowsNode final : public Node {
 public:
  SortRowsNode(const View& chosen, std::shared_ptr<Grouping> grouping, const std::byte* from,
               const ProductRows& rows, int64_t pairs_per_row, std::byte* to)
      : chosen_(chosen),
        grouping_(std::move(grouping)),
        from_(from),
        rows_(rows),
        pairs_per_row_(pairs_per_row),
        to_(to) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return chosen_.Elements(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const size_t bytes = rows_.Bytes(grouping_->FormOf(rows_.kernels, chosen_.Elements(step)));
    for (int64_t pair = begin; pair < end; ++pair) {
      std::memcpy(to_ + static_cast<size_t>(grouping_->place[pair]) * bytes,
                  from_ + static_cast<size_t>(pair / pairs_per_row_) * bytes, bytes);
    }
  }

 private:
  View chosen_;
  std::shared_ptr<Grouping> grouping_;
  const std::byte* from_;
  ProductRows rows_;
  int64_t pairs_per_row_;
  std::byte* to_;
};

// y[place] = x[place] . W[expert], rows [first_row, first_row + n) of each expert's matrix. Items
// are pairs of expert and block of rows, of the experts in use. They cost what the expert has of
// rows of x: from one to all of them in one step.
class ExpertProductNode : public Node {
 public:
  // `x`: sorted rows, as the kernels of the weight want them.
  struct Shape {
    int64_t first_row = 0;
    int64_t n = 0;
  };
  ExpertProductNode(const CompileContext& context, const View& chosen, const View& weight,
                    Shape shape, std::shared_ptr<Grouping> grouping, const std::byte* x,
                    int64_t max_pairs, float* y)
      : kernels_(context.kernels),
        chosen_(chosen),
        weight_(weight),
        shape_(shape),
        grouping_(std::move(grouping)),
        rows_{context.kernels, weight.dtype, static_cast<size_t>(weight.dims[2].constant),
              context.planes},
        x_(x),
        y_(y) {
    // Form and stride of x follow from how many pairs an expert has on average, the number of
    // columns from how many it has: up to all.
    const size_t bytes =
        MatMulScratchBytes(kernels_, weight.dtype, rows_.k, static_cast<size_t>(max_pairs));
    for (int worker = 0; worker < context.workers; ++worker) {
      scratch_.push_back(context.workspace.Borrow(bytes));
    }
  }
  // Before the step is grouped: as many as it could use.
  [[nodiscard]] int64_t Items(const Step& step) const override {
    return grouping_->MaxUsed(chosen_.Elements(step)) * Blocks();
  }
  [[nodiscard]] bool Uneven() const override { return true; }
  void Run(const Step& step, int worker, int64_t begin, int64_t end) override {
    const ActivationForm form = grouping_->FormOf(kernels_, chosen_.Elements(step));
    for (int64_t item = begin; item < end; ++item) {
      const int64_t index = item / Blocks();
      if (index >= grouping_->used_count) return;
      RunBlock(grouping_->used[index], item % Blocks(), form, worker);
    }
  }

 private:
  [[nodiscard]] int64_t Blocks() const {
    constexpr auto kRows = static_cast<int64_t>(kBlockRows);
    return (shape_.n + kRows - 1) / kRows;
  }

  void RunBlock(int64_t expert, int64_t block, ActivationForm form, int worker) {
    const auto n = static_cast<size_t>(shape_.n);
    const auto first = static_cast<size_t>(grouping_->first[expert]);
    MatMulArgs a;
    a.packed = weight_.packed;
    a.k = rows_.k;
    a.row_bytes = RowBytes(weight_.dtype, a.k);
    const int64_t first_row = expert * weight_.dims[1].constant + shape_.first_row;
    a.weights = weight_.data + static_cast<size_t>(first_row) * a.row_bytes;
    a.form = form;
    a.x_stride = rows_.Bytes(form);
    a.x = x_ + first * a.x_stride;
    a.columns = static_cast<size_t>(grouping_->Count(expert));
    a.planes = rows_.planes;
    a.y = y_ + first * n;
    a.y_stride = n;
    a.n_begin = static_cast<size_t>(block) * kBlockRows;
    a.n_end = std::min(a.n_begin + kBlockRows, n);
    a.scratch = scratch_[static_cast<size_t>(worker)];
    MatMul(kernels_, weight_.dtype, a);
  }

  const KernelTable& kernels_;
  View chosen_;
  View weight_;
  Shape shape_;
  std::shared_ptr<Grouping> grouping_;
  ProductRows rows_;
  const std::byte* x_;
  float* y_;
  std::vector<std::byte*> scratch_;
};

// Everything the ops of this file share while they are compiled.
class ExpertBuilder {
 public:
  ExpertBuilder(const CompileContext& context, const View& chosen, int64_t experts)
      : context_(context), chosen_(chosen), grouping_(std::make_shared<Grouping>()) {
    max_pairs_ = chosen.Elements(context.MaxStep());
    grouping_->experts = experts;
    grouping_->chosen = chosen.dims[1].constant;
    grouping_->first = AllocateInts(context, experts + 1);
    grouping_->place = AllocateInts(context, max_pairs_);
    grouping_->used = AllocateInts(context, grouping_->MaxUsed(max_pairs_));
    context.nodes.Add(std::make_unique<GroupNode>(chosen, grouping_));
  }

  [[nodiscard]] const std::shared_ptr<Grouping>& grouping() const { return grouping_; }
  [[nodiscard]] int64_t max_pairs() const { return max_pairs_; }

  [[nodiscard]] float* AllocateRows(int64_t columns) const {
    return reinterpret_cast<float*>(
        context_.workspace.Borrow(static_cast<uint64_t>(max_pairs_ * columns) * sizeof(float)));
  }

  // Rows of x, one for each `pairs_per_row` pairs, sorted and in the form that products with this
  // weight type read.
  const std::byte* Sorted(const View& x, DType weight, int64_t pairs_per_row) const {
    const Step max = context_.MaxStep();
    const ProductRows rows{context_.kernels, weight, static_cast<size_t>(x.Last(max)),
                           context_.planes};
    const RowShare share = grouping_->ShareOf(pairs_per_row);
    const std::byte* from =
        UsesActivationRows(weight) ? context_.nodes.Activations(context_, x, share) : x.data;
    // With fewer rows, rows are as long or shorter.
    const size_t bytes = rows.Bytes(FormFor(context_.kernels, share.Of(x.Rows(max))));
    std::byte* to = context_.workspace.Borrow(static_cast<uint64_t>(max_pairs_) * bytes);
    context_.nodes.Add(
        std::make_unique<SortRowsNode>(chosen_, grouping_, from, rows, pairs_per_row, to));
    return to;
  }

  // Activations that are in sorted order already, [pairs, columns], in that form.
  const std::byte* Converted(float* rows, int64_t columns, DType weight) const {
    View view;
    view.data = reinterpret_cast<std::byte*>(rows);
    view.rank = 2;
    view.dims[0] = chosen_.dims[0];
    view.dims[0].constant *= grouping_->chosen;
    view.dims[0].t *= static_cast<int32_t>(grouping_->chosen);
    view.dims[0].r *= static_cast<int32_t>(grouping_->chosen);
    view.dims[1].constant = columns;
    return UsesActivationRows(weight)
               ? context_.nodes.ActivationsOnce(context_, view, grouping_->ShareOf(1))
               : view.data;
  }

  void Product(const View& weight, ExpertProductNode::Shape shape, const std::byte* x,
               float* y) const {
    context_.nodes.Add(std::make_unique<ExpertProductNode>(context_, chosen_, weight, shape,
                                                           grouping_, x, max_pairs_, y));
  }

 private:
  const CompileContext& context_;
  View chosen_;
  std::shared_ptr<Grouping> grouping_;
  int64_t max_pairs_ = 0;
};

// Results from their places back to the order of rows.
class UnsortNode final : public Node {
 public:
  UnsortNode(std::shared_ptr<Grouping> grouping, const float* from, const View& y)
      : grouping_(std::move(grouping)), from_(from), y_(y) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const auto columns = static_cast<size_t>(y_.Last(step));
    for (int64_t pair = begin * grouping_->chosen; pair < end * grouping_->chosen; ++pair) {
      const auto place = static_cast<size_t>(grouping_->place[pair]);
      std::copy_n(from_ + place * columns, columns,
                  y_.as<float>() + static_cast<size_t>(pair) * columns);
    }
  }

 private:
  std::shared_ptr<Grouping> grouping_;
  const float* from_;
  View y_;
};

// gelu(gate) * up in place of gate, place by place.
class ExpertGluNode final : public Node {
 public:
  ExpertGluNode(const KernelTable& kernels, const View& chosen, float* gate, const float* up,
                int64_t columns)
      : kernels_(kernels),
        chosen_(chosen),
        gate_(gate),
        up_(up),
        columns_(static_cast<size_t>(columns)) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return chosen_.Elements(step); }
  void Run(const Step& /*step*/, int /*worker*/, int64_t begin, int64_t end) override {
    const size_t from = static_cast<size_t>(begin) * columns_;
    kernels_.geglu(gate_ + from, up_ + from, static_cast<size_t>(end - begin) * columns_,
                   gate_ + from);
  }

 private:
  const KernelTable& kernels_;
  View chosen_;
  float* gate_;
  const float* up_;
  size_t columns_;
};

// y[row] = sum over its pairs of weight * scale of the expert * result.
class CombineNode final : public Node {
 public:
  CombineNode(const CompileContext& context, std::shared_ptr<Grouping> grouping, const float* from)
      : kernels_(context.kernels),
        grouping_(std::move(grouping)),
        from_(from),
        weights_(context.Input(1)),
        chosen_(context.Input(2)),
        scale_(context.Input(6)),
        y_(context.Result()) {}
  [[nodiscard]] int64_t Items(const Step& step) const override { return y_.Rows(step); }
  void Run(const Step& step, int /*worker*/, int64_t begin, int64_t end) override {
    const auto columns = static_cast<size_t>(y_.Last(step));
    for (int64_t row = begin; row < end; ++row) {
      float* y = y_.as<float>() + static_cast<size_t>(row) * columns;
      std::fill_n(y, columns, 0.0f);
      for (int64_t j = 0; j < grouping_->chosen; ++j) {
        const int64_t pair = row * grouping_->chosen + j;
        float weight = weights_.as<const float>()[pair];
        const int32_t expert = chosen_.as<const int32_t>()[pair];
        const bool exists = expert >= 0 && expert < grouping_->experts;
        if (scale_.present() && exists) weight *= scale_.as<const float>()[expert];
        const auto place = static_cast<size_t>(grouping_->place[pair]);
        kernels_.axpy(weight, from_ + place * columns, columns, y);
      }
    }
  }

 private:
  const KernelTable& kernels_;
  std::shared_ptr<Grouping> grouping_;
  const float* from_;
  View weights_, chosen_, scale_, y_;
};

void CompileGroupedMatMul(const CompileContext& context) {
  const View x = context.Input(0);
  const View weight = context.Input(1);
  const View chosen = context.Input(2);
  const ExpertBuilder builder(context, chosen, weight.dims[0].constant);
  const int64_t n = weight.dims[1].constant;
  // Rows of rank 3 count one by one.
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
  builder.Product(weight, {0, n}, builder.Sorted(rows, weight.dtype, pairs_per_row), y);
  context.nodes.Add(std::make_unique<UnsortNode>(builder.grouping(), y, context.Result()));
}

void CompileMoeFfn(const CompileContext& context) {
  const View x = context.Input(0);
  const View chosen = context.Input(2);
  const View gate = context.Input(3);
  const View up = context.Input(4);
  const View down = context.Input(5);
  const ExpertBuilder builder(context, chosen, gate.dims[0].constant);
  const int64_t inner = down.dims[2].constant;
  const int64_t pairs_per_row = chosen.dims[1].constant;
  const std::byte* sorted = builder.Sorted(x, gate.dtype, pairs_per_row);
  float* hidden = builder.AllocateRows(inner);
  float* up_rows = builder.AllocateRows(inner);
  builder.Product(gate, {0, inner}, sorted, hidden);
  if (up.present()) {
    const bool alike = UsesActivationRows(up.dtype) == UsesActivationRows(gate.dtype);
    const std::byte* own = alike ? sorted : builder.Sorted(x, up.dtype, pairs_per_row);
    builder.Product(up, {0, inner}, own, up_rows);
  } else {
    builder.Product(gate, {inner, inner}, sorted, up_rows);
  }
  context.nodes.Add(
      std::make_unique<ExpertGluNode>(context.kernels, chosen, hidden, up_rows, inner));
  const std::byte* activated = builder.Converted(hidden, inner, down.dtype);
  float* results = builder.AllocateRows(x.dims[1].constant);
  builder.Product(down, {0, x.dims[1].constant}, activated, results);
  context.nodes.Add(std::make_unique<CombineNode>(context, builder.grouping(), results));
}

}  // namespace

bool CompileMoe(const CompileContext& context) {
  switch (context.op.kind) {
    case RL_OP_grouped_matmul:
      CompileGroupedMatMul(context);
      return true;
    case RL_OP_moe_ffn:
      CompileMoeFfn(context);
      return true;
    default:
      return false;
  }
}

}  // namespace rullama::cpu
