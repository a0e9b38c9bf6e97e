// Products with the experts that the router chose, and with the adapters that rows have. Each row
// of a chosen one is decoded once; others are not decoded.
#include <algorithm>
#include <span>
#include <vector>

#include "core/reference/dot_lanes.h"
#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

// The pairs (row, j) of each expert: row * k + j. Error ref.index.
Result<std::vector<std::vector<size_t>>> GroupByExpert(const Call& call, const Tensor& experts,
                                                       int64_t count) {
  std::vector<std::vector<size_t>> groups(static_cast<size_t>(count));
  for (size_t pair = 0; pair < experts.i.size(); ++pair) {
    const int64_t expert = experts.i[pair];
    if (expert < 0 || expert >= count) {
      return IndexError(call, "row {} asks for expert {} of {}",
                        pair / static_cast<size_t>(experts.last()), expert, count);
    }
    groups[static_cast<size_t>(expert)].push_back(pair);
  }
  return groups;
}

// y[pair] = x of the pair times weight[expert]^T. x has one row per pair or one row per k pairs.
Status GroupedLinear(const Call& call, const Tensor& x, const Tensor& weight, const Tensor& experts,
                     Tensor& y) {
  RL_ASSIGN_OR_RETURN(const auto groups, GroupByExpert(call, experts, weight.dims[0]));
  const int64_t n = weight.dims[1];
  const int64_t m = weight.dims[2];
  const size_t pairs_per_row = x.dims.size() == 3 ? 1 : static_cast<size_t>(experts.last());
  std::vector<double> row(static_cast<size_t>(m));
  std::vector<Lanes> lanes(row.size());
  for (size_t expert = 0; expert < groups.size(); ++expert) {
    for (int64_t j = 0; j < n && !groups[expert].empty(); j += kLanes) {
      const int64_t count = std::min<int64_t>(kLanes, n - j);
      const int64_t first = static_cast<int64_t>(expert) * n + j;
      RL_RETURN_IF_ERROR(ReadLanes(weight, first, count, row, lanes));
      for (const size_t pair : groups[expert]) {
        const std::span<const double> input(x.f.data() + pair / pairs_per_row * row.size(),
                                            row.size());
        const Lanes sums = DotLanes(input, lanes);
        std::copy_n(sums.begin(), count,
                    y.f.begin() + static_cast<std::ptrdiff_t>(static_cast<int64_t>(pair) * n + j));
      }
    }
  }
  return OkStatus();
}

// y[pair] = x of the pair times weight[expert][m, n] as stored.
Status GroupedAsStored(const Call& call, const Tensor& x, const Tensor& weight,
                       const Tensor& experts, Tensor& y) {
  RL_ASSIGN_OR_RETURN(const auto groups, GroupByExpert(call, experts, weight.dims[0]));
  const int64_t m = weight.dims[1];
  const int64_t n = weight.dims[2];
  const size_t pairs_per_row = x.dims.size() == 3 ? 1 : static_cast<size_t>(experts.last());
  std::vector<double> row(static_cast<size_t>(n));
  for (size_t expert = 0; expert < groups.size(); ++expert) {
    for (int64_t i = 0; i < m && !groups[expert].empty(); ++i) {
      RL_RETURN_IF_ERROR(ReadFloats(weight, (static_cast<int64_t>(expert) * m + i) * n, row));
      for (const size_t pair : groups[expert]) {
        const double factor =
            x.f[pair / pairs_per_row * static_cast<size_t>(m) + static_cast<size_t>(i)];
        AddScaled(factor, row, std::span(y.f).subspan(pair * row.size(), row.size()));
      }
    }
  }
  return OkStatus();
}

// gelu(gate) * up for every pair, f32[rows, k, f].
Result<Tensor> Activations(const Call& call, const Tensor& x, const Tensor& experts,
                           int64_t inner) {
  using In = operands::MoeFfn;
  const Tensor& gate_weight = call.in(In::gate_weight);
  const int64_t rows = experts.dims[0], k = experts.dims[1];
  Tensor gate = MakeZeros(DType::kF32, {rows, k, gate_weight.dims[1]});
  RL_RETURN_IF_ERROR(GroupedLinear(call, x, gate_weight, experts, gate));
  Tensor up;
  if (call.has(In::up_weight)) {
    up = MakeZeros(DType::kF32, {rows, k, inner});
    RL_RETURN_IF_ERROR(GroupedLinear(call, x, call.in(In::up_weight), experts, up));
  }
  Tensor result = MakeZeros(DType::kF32, {rows, k, inner});
  const auto width = static_cast<size_t>(inner);
  for (size_t i = 0; i < result.f.size(); ++i) {
    const size_t pair = i / width, column = i % width;
    // If there is no separate tensor, up follows gate in the same row.
    const double g = call.has(In::up_weight) ? gate.f[i] : gate.f[pair * 2 * width + column];
    const double u = call.has(In::up_weight) ? up.f[i] : gate.f[(pair * 2 + 1) * width + column];
    result.f[i] = GeluTanh(g) * u;
  }
  return result;
}

}  // namespace

Status EvalGroupedMatMul(const Call& call) {
  using In = operands::GroupedMatMul;
  const bool as_stored = call.As<rl_grouped_matmul_attrs>().as_stored == 1;
  return (as_stored ? GroupedAsStored : GroupedLinear)(call, call.in(In::x), call.in(In::weight),
                                                       call.in(In::experts), call.y());
}

namespace {

// Adapters of rows, and which of them each row has.
struct RowAdapters {
  const Tensor &a, &b, &ids, &factors;
};

// Adds to y what the adapters of each row add.
Status AddAdapters(const Call& call, const Tensor& x, const RowAdapters& adapters, Tensor& y) {
  const std::vector<int64_t>& pairs = adapters.ids.dims;
  Tensor inner = MakeZeros(DType::kF32, {pairs[0], pairs[1], adapters.a.dims[1]});
  RL_RETURN_IF_ERROR(GroupedLinear(call, x, adapters.a, adapters.ids, inner));
  Tensor changes = MakeZeros(DType::kF32, {pairs[0], pairs[1], adapters.b.dims[1]});
  RL_RETURN_IF_ERROR(GroupedLinear(call, inner, adapters.b, adapters.ids, changes));
  const auto columns = static_cast<size_t>(y.last());
  const auto places = static_cast<size_t>(pairs[1]);
  for (size_t pair = 0; pair < adapters.factors.f.size(); ++pair) {
    const double factor = adapters.factors.f[pair];
    if (factor == 0) continue;
    for (size_t j = 0; j < columns; ++j) {
      y.f[pair / places * columns + j] += factor * changes.f[pair * columns + j];
    }
  }
  return OkStatus();
}

}  // namespace

Status EvalAdapterSum(const Call& call) {
  using In = operands::AdapterSum;
  call.y().f = call.in(In::base).f;
  return AddAdapters(call, call.in(In::x),
                     {call.in(In::a), call.in(In::b), call.in(In::ids), call.in(In::factors)},
                     call.y());
}

Status EvalRowAdaptedLinear(const Call& call) {
  using In = operands::RowAdaptedLinear;
  RL_RETURN_IF_ERROR(Linear(call.in(In::x), call.in(In::weight), call.y()));
  return AddAdapters(call, call.in(In::x),
                     {call.in(In::a), call.in(In::b), call.in(In::ids), call.in(In::factors)},
                     call.y());
}

Status EvalRowAdaptedGeGluLinear(const Call& call) {
  using In = operands::RowAdaptedGeGluLinear;
  const Tensor& x = call.in(In::x);
  const auto half = [&](size_t weight, size_t a, size_t b, Tensor& y) -> Status {
    RL_RETURN_IF_ERROR(Linear(x, call.in(weight), y));
    return AddAdapters(call, x, {call.in(a), call.in(b), call.in(In::ids), call.in(In::factors)},
                       y);
  };
  Tensor& y = call.y();
  RL_RETURN_IF_ERROR(half(In::gate_weight, In::gate_a, In::gate_b, y));
  Tensor up = MakeZeros(y.dtype, y.dims);
  RL_RETURN_IF_ERROR(half(In::up_weight, In::up_a, In::up_b, up));
  for (size_t j = 0; j < y.f.size(); ++j) y.f[j] = GeluTanh(y.f[j]) * up.f[j];
  return OkStatus();
}

Status EvalMoeFfn(const Call& call) {
  using In = operands::MoeFfn;
  const Tensor& x = call.in(In::x);
  const Tensor& weights = call.in(In::weights);
  const Tensor& experts = call.in(In::experts);
  const Tensor& down_weight = call.in(In::down_weight);
  RL_ASSIGN_OR_RETURN(const Tensor hidden, Activations(call, x, experts, down_weight.dims[2]));
  Tensor down = MakeZeros(DType::kF32, {experts.dims[0], experts.dims[1], x.last()});
  RL_RETURN_IF_ERROR(GroupedLinear(call, hidden, down_weight, experts, down));
  const auto columns = static_cast<size_t>(x.last());
  const auto k = static_cast<size_t>(experts.last());
  for (size_t pair = 0; pair < experts.i.size(); ++pair) {
    const double scale = call.has(In::expert_scale)
                             ? call.in(In::expert_scale).f[static_cast<size_t>(experts.i[pair])]
                             : 1.0;
    for (size_t j = 0; j < columns; ++j) {
      call.y().f[pair / k * columns + j] += weights.f[pair] * scale * down.f[pair * columns + j];
    }
  }
  return OkStatus();
}

}  // namespace rullama::reference
