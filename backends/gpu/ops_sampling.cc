// cumsum, topk, the masks and draws of samplers, penalties and biases.
#include <rullama/sdk/operands.h>

#include <algorithm>
#include <bit>

#include "backends/gpu/matrix_product.h"
#include "backends/gpu/op_rows.h"
#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {
namespace {

using enum ScanOp;

constexpr uint32_t kSamplingThreads = 256;
// Entries of a list that is sorted in shared memory.
constexpr uint64_t kSharedList = 1024;

// A list to be sorted: its room, and memory if shared memory is too small.
struct List {
  uint64_t room;
  uint32_t shared;
  Scratch memory;
};
List ListFor(PlanBuilder& plan, int64_t entries, int64_t rows) {
  List list{std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(entries, 2))), 0, {}};
  if (list.room <= kSharedList) {
    list.shared = static_cast<uint32_t>(list.room);
  } else {
    list.memory =
        plan.scratch().New(list.room * static_cast<uint64_t>(rows) * 2 * sizeof(uint32_t));
  }
  return list;
}
// The workgroup size of kernels with a prefix sum, which takes at most 1,024 invocations.
uint32_t Wide(const PlanBuilder& plan) { return std::min(plan.target().prefers.wide, 1024U); }

void RunScan(PlanBuilder& plan, ScanOp kind, uint32_t input, uint32_t u, float top_p) {
  const rl_value& x = plan.graph().value(input);
  DispatchBuilder(plan, kernels::Scan{.threads = Wide(plan), .op = kind},
                  {.x = input,
                   .u = u,
                   .y = plan.ResultIndex(),
                   .rows = {x.dims[0], MiddleElements(x)},
                   .columns = Last(x),
                   .top_p = top_p})
      .Emit(static_cast<uint64_t>(plan.MaxRows(x) * MiddleElements(x)));
}

void CumSum(PlanBuilder& plan) {
  RunScan(plan, kCumSum, plan.InputIndex(operands::CumSum::x), RL_NO_VALUE, 0);
}

void TopPMask(PlanBuilder& plan) {
  RunScan(plan, kTopP, plan.InputIndex(operands::TopPMask::x), RL_NO_VALUE,
          plan.attrs<rl_top_p_mask_attrs>().p);
}

void Categorical(PlanBuilder& plan) {
  RunScan(plan, kCategorical, plan.InputIndex(operands::Categorical::x),
          plan.InputIndex(operands::Categorical::u), 0);
}

void TopKOfFew(PlanBuilder& plan) {
  const rl_value& x = plan.Input(operands::TopK::x);
  const Epilogue& epilogue = plan.node().epilogue;
  DispatchBuilder(plan,
                  kernels::TopKFew{.threads = kSamplingThreads,
                                   .softmax = epilogue.kind == EpilogueKind::kSoftmax},
                  {.x = plan.InputIndex(operands::TopK::x),
                   .values = plan.StoredIndex(),
                   .indices = plan.ResultIndex(1),
                   .rows = x.dims[0],
                   .columns = Last(x),
                   .k = plan.attrs<rl_topk_attrs>().k,
                   .factor = epilogue.factor})
      .Emit(static_cast<uint64_t>(plan.MaxRows(x)));
}

// The number of workgroups that share a row of a top-k. Each part has k columns or more: the last
// is shorter than the others by less than kMaxParts. The candidates of all parts are far fewer than
// the columns.
uint64_t TopKParts(uint64_t columns, uint64_t k) {
  constexpr uint64_t kMaxParts = 64;
  constexpr uint64_t kMinShare = 2048;  // columns that keep a workgroup busy
  constexpr uint64_t kGain = 8;         // columns of a part for each of its candidates
  const uint64_t parts = std::min({kMaxParts, columns / kMinShare, columns / (k * kGain)});
  return std::max<uint64_t>(parts, 1);
}

struct TopKStage {
  BufferArgument x, ids, values, indices;
  uint64_t columns, parts;
};
void EmitTopK(PlanBuilder& plan, const TopKStage& stage) {
  const rl_value& x = plan.Input(operands::TopK::x);
  const int64_t k = plan.attrs<rl_topk_attrs>().k;
  const auto groups = static_cast<int64_t>(stage.parts) * plan.MaxRows(x);
  const List list = ListFor(plan, k, groups);
  DispatchBuilder(plan, kernels::TopK{.threads = Wide(plan), .shared = list.shared},
                  {.x = stage.x,
                   .ids = stage.ids,
                   .values = stage.values,
                   .indices = stage.indices,
                   .list = list.memory,
                   .rows = x.dims[0],
                   .columns = stage.columns,
                   .parts = stage.parts,
                   .share = CeilDiv(stage.columns, stage.parts),
                   .k = k,
                   .room = list.room})
      .Emit(static_cast<uint64_t>(groups));
}

// A long row is shared by several workgroups, whose candidates a second dispatch merges. They come
// in the order of their columns where they are equal.
void TopK(PlanBuilder& plan) {
  const rl_value& x = plan.Input(operands::TopK::x);
  if (Last(x) <= kernels::TopKFew::kMaxColumns) {
    TopKOfFew(plan);
    return;
  }
  const auto k = static_cast<uint64_t>(plan.attrs<rl_topk_attrs>().k);
  const auto columns = static_cast<uint64_t>(Last(x));
  const uint64_t parts = TopKParts(columns, k);
  TopKStage stage{.x = plan.InputIndex(operands::TopK::x),
                  .ids = RL_NO_VALUE,
                  .values = plan.ResultIndex(0),
                  .indices = plan.ResultIndex(1),
                  .columns = columns,
                  .parts = parts};
  if (parts > 1) {
    const auto bytes = static_cast<uint64_t>(plan.MaxRows(x)) * parts * k * sizeof(uint32_t);
    const Scratch values = plan.scratch().New(bytes);
    const Scratch indices = plan.scratch().New(bytes);
    TopKStage candidates = stage;
    candidates.values = values;
    candidates.indices = indices;
    EmitTopK(plan, candidates);
    stage = {values, indices, stage.values, stage.indices, parts * k, 1};
  }
  EmitTopK(plan, stage);
}

void TypicalPMask(PlanBuilder& plan) {
  const uint32_t input = plan.InputIndex(operands::TypicalPMask::x);
  const rl_value& x = plan.graph().value(input);
  const List list = ListFor(plan, Last(x), plan.MaxRows(x));
  DispatchBuilder(plan, kernels::TypicalP{.threads = Wide(plan), .shared = list.shared},
                  {.x = input,
                   .y = plan.ResultIndex(),
                   .list = list.memory,
                   .rows = x.dims[0],
                   .columns = Last(x),
                   .room = list.room,
                   .top_p = plan.attrs<rl_typical_p_mask_attrs>().p})
      .Emit(static_cast<uint64_t>(plan.MaxRows(x)));
}

void EntropyAccept(PlanBuilder& plan) {
  const uint32_t input = plan.InputIndex(operands::EntropyAccept::entropy);
  const rl_value& x = plan.graph().value(input);
  const List list = ListFor(plan, plan.MaxRows(x), 1);
  DispatchBuilder(plan, kernels::EntropyAccept{.threads = kSamplingThreads, .shared = list.shared},
                  {.x = input,
                   .y = plan.ResultIndex(),
                   .list = list.memory,
                   .rows = x.dims[0],
                   .room = list.room,
                   .bound = plan.attrs<rl_entropy_accept_attrs>().bound})
      .Emit(1);
}

// Both ops have their operands at the same positions. `settings`: those of each row, or
// RL_NO_VALUE.
void Penalise(PlanBuilder& plan, const rl_penalties_attrs& a, uint32_t settings) {
  Copy(plan);  // the kernel changes single logits of the copy
  const rl_value& history = plan.Input(operands::Penalties::history);
  const rl_value& y = plan.Result();
  using In = operands::Penalties;
  DispatchBuilder(plan,
                  kernels::Penalties{.threads = kSamplingThreads,
                                     .last_n = static_cast<int32_t>(a.last_n),
                                     .repeat = a.repeat,
                                     .frequency = a.frequency,
                                     .presence = a.presence},
                  {.x = plan.InputIndex(In::logits),
                   .history = plan.InputIndex(In::history),
                   .tokens = plan.InputIndex(In::tokens),
                   .q_pos = plan.InputIndex(In::q_pos),
                   .q_slot = plan.InputIndex(In::q_slot),
                   .kv_pos = plan.InputIndex(In::kv_pos),
                   .kv_slot = plan.InputIndex(In::kv_slot),
                   .past = plan.InputIndex(In::past),
                   .settings = settings,
                   .y = plan.ResultIndex(),
                   .rows = y.dims[0],
                   .fresh = plan.Input(In::tokens).dims[0],
                   .columns = Last(y),
                   .slots = history.dims[0].constant,
                   .capacity = history.dims[1].constant,
                   .op = plan.op_index() + 1})
      .Emit(static_cast<uint64_t>(plan.MaxRows(y)));
}

void Penalties(PlanBuilder& plan) { Penalise(plan, plan.attrs<rl_penalties_attrs>(), RL_NO_VALUE); }
void RowPenalties(PlanBuilder& plan) {
  Penalise(plan, {}, plan.InputIndex(operands::RowPenalties::settings));
}

// Both ops have their operands at the same positions.
void AddBiases(PlanBuilder& plan, int64_t count, int64_t stride) {
  Copy(plan);
  const rl_value& y = plan.Result();
  using In = operands::BiasAdd;
  DispatchBuilder(plan, kernels::BiasAdd{.threads = kSamplingThreads},
                  {.x = plan.InputIndex(In::logits),
                   .ids = plan.InputIndex(In::ids),
                   .biases = plan.InputIndex(In::bias),
                   .y = plan.ResultIndex(),
                   .rows = y.dims[0],
                   .columns = Last(y),
                   .count = count,
                   .stride = stride,
                   .op = plan.op_index() + 1})
      .Emit(static_cast<uint64_t>(plan.MaxRows(y)));
}

void BiasAdd(PlanBuilder& plan) {
  AddBiases(plan, plan.Input(operands::BiasAdd::ids).dims[0].constant, 0);
}
void RowBias(PlanBuilder& plan) {
  const int64_t count = Last(plan.Input(operands::RowBias::ids));
  AddBiases(plan, count, count);
}

void DrawUniform(PlanBuilder& plan, uint32_t seed, uint32_t pos, uint32_t slot, int32_t stream) {
  const rl_value& y = plan.Result();
  DispatchBuilder(plan, kernels::RandomUniform{.threads = kSamplingThreads},
                  {.seed = seed,
                   .pos = pos,
                   .slot = slot,
                   .y = plan.ResultIndex(),
                   .rows = y.dims[0],
                   .stream = stream})
      .Emit((static_cast<uint64_t>(plan.MaxRows(y)) + kSamplingThreads - 1) / kSamplingThreads);
}

void RandomUniform(PlanBuilder& plan) {
  using In = operands::RandomUniform;
  DrawUniform(plan, plan.InputIndex(In::seed), plan.InputIndex(In::pos), plan.InputIndex(In::slot),
              plan.attrs<rl_random_uniform_attrs>().stream);
}
void RowUniform(PlanBuilder& plan) {
  using In = operands::RowUniform;
  DrawUniform(plan, plan.InputIndex(In::key), plan.InputIndex(In::pos), RL_NO_VALUE, 0);
}

void RowSample(PlanBuilder& plan) {
  const uint32_t input = plan.InputIndex(operands::RowSample::x);
  const rl_value& x = plan.graph().value(input);
  const List list = ListFor(plan, Last(x), plan.MaxRows(x));
  const auto elements = static_cast<uint64_t>(plan.MaxRows(x) * Last(x));
  DispatchBuilder(plan, kernels::RowSample{.threads = Wide(plan), .shared = list.shared},
                  {.x = input,
                   .u = plan.InputIndex(operands::RowSample::u),
                   .settings = plan.InputIndex(operands::RowSample::settings),
                   .y = plan.ResultIndex(),
                   .kept = plan.scratch().New(elements * sizeof(float)),
                   .list = list.memory,
                   .rows = x.dims[0],
                   .columns = Last(x),
                   .room = list.room})
      .Emit(static_cast<uint64_t>(plan.MaxRows(x)));
}

std::string RefuseEntropyAccept(const sdk::GraphView& graph, const rl_op& op,
                                const DeviceLimits& limits) {
  return limits.float64 ? RefusePlain(graph, op, limits) : "the device has no numbers of 64 bits";
}

}  // namespace

const OpRow rows::kCumSum = {RL_OP_cumsum, RefusePlain, CumSum};
const OpRow rows::kTopPMask = {RL_OP_top_p_mask, RefusePlain, TopPMask};
const OpRow rows::kCategorical = {RL_OP_categorical, RefusePlain, Categorical};
const OpRow rows::kTopK = {RL_OP_topk, RefusePlain, TopK};
const OpRow rows::kTypicalPMask = {RL_OP_typical_p_mask, RefusePlain, TypicalPMask};
const OpRow rows::kEntropyAccept = {RL_OP_entropy_accept, RefuseEntropyAccept, EntropyAccept};
const OpRow rows::kPenalties = {RL_OP_penalties, RefusePlain, Penalties};
const OpRow rows::kBiasAdd = {RL_OP_bias_add, RefusePlain, BiasAdd};
const OpRow rows::kRandomUniform = {RL_OP_random_uniform, RefusePlain, RandomUniform};
const OpRow rows::kRowBias = {RL_OP_row_bias, RefusePlain, RowBias};
const OpRow rows::kRowPenalties = {RL_OP_row_penalties, RefusePlain, RowPenalties};
const OpRow rows::kRowUniform = {RL_OP_row_uniform, RefusePlain, RowUniform};
const OpRow rows::kRowSample = {RL_OP_row_sample, RefusePlain, RowSample};

}  // namespace rullama::gpu
