// Tests of failures at run time: cancelled work, ids out of range, graphs that cannot be compiled.
#include "conformance/check.h"
#include "conformance/layer.h"
#include "conformance/suite.h"

namespace rullama::conformance {
namespace {

// Work that is cancelled ends with RL_CANCELLED (or was too short to notice); afterwards the plan
// works.
Status CancelledPlanWorksAgain(Suite& suite, Device& device) {
  RL_ASSIGN_OR_RETURN(const Case test, RichestCase(device, SeedOf(suite, "Cancel")));
  RL_ASSIGN_OR_RETURN(const auto program, Program::Create(device, test));
  RL_RETURN_IF_ERROR(program->BindAll(test));
  suite.cancelled->store(true);
  const Status cancelled = program->Run(test.extents);
  suite.cancelled->store(false);
  if (!cancelled && cancelled.error().id != "run.cancelled") {
    return Failed("cancelled work ends with {}", cancelled.error().ToString());
  }
  RL_RETURN_IF_ERROR(program->BindAll(test));
  RL_RETURN_IF_ERROR(program->Poison(0xFF));
  RL_RETURN_IF_ERROR(program->Run(test.extents));
  RL_ASSIGN_OR_RETURN(const auto results, ReadResults(*program, test));
  RL_ASSIGN_OR_RETURN(const auto ran, RunReference(test));
  return CompareWithReference(test, ran, results, suite.manifest.activations);
}

// An op of three rows, the second of which asks for an adapter that there is not.
Case BadAdapters(CaseBuilder b, OpKind kind, int32_t bad) {
  const bool adds = kind == OpKind::kAdapterSum;
  std::vector<ValueId> operands = {b.Floats("x", F({kT, 64}))};
  const auto product = [&](std::string_view name) {
    const auto named = [name](const char* part) { return fmt::format("{}_{}", name, part); };
    if (!adds) operands.push_back(b.Weight(named("weight"), {DType::kF16, {32, 64}}));
    operands.push_back(b.Constant(named("a"), F({4, 8, 64})));
    operands.push_back(b.Constant(named("b"), F({4, 32, 8})));
  };
  if (adds) operands.push_back(b.Floats("base", F({kT, 32})));
  product("gate");
  if (kind == OpKind::kRowAdaptedGeGluLinear) product("up");
  operands.push_back(b.Ints("ids", I({kT, 1}), {0, bad, 3}));
  operands.push_back(b.Floats("factors", F({kT, 1})));
  return OneOp(std::move(b), kind, operands, OpAttrs(kind), ToleranceClass::kExact);
}

// Indices from outside: an error or rows that are skipped, but never memory that is not the op's
// own.
Status BadIndices(Suite& suite, Device& device, OpKind kind) {
  constexpr int32_t kBad[] = {-1, 1000000, INT32_MIN, INT32_MAX};
  for (const int32_t bad : kBad) {
    // Products of experts have more rows than kernels for a few take.
    CaseBuilder b(SeedOf(suite, "Indices"), kind == OpKind::kGroupedMatMul ? 24 : 3);
    Case test;
    if (kind == OpKind::kGatherRows) {
      const ValueId table = b.Floats("table", F({20, 32}));
      const ValueId ids = b.Ints("ids", I({kT}), {3, bad, 19});
      test = OneOp(std::move(b), kind, {table, ids}, OpAttrs(kind), ToleranceClass::kExact);
    } else if (kind == OpKind::kGroupedMatMul) {
      const ValueId x = b.Floats("x", F({kT, 64}));
      const ValueId weight = b.Weight("weight", {DType::kF16, {4, 3, 64}});
      std::vector<int32_t> chosen(24, 2);
      chosen[1] = chosen[17] = bad;
      const ValueId experts = b.Ints("experts", I({kT, 1}), chosen);
      test = OneOp(std::move(b), kind, {x, weight, experts}, OpAttrs(kind), ToleranceClass::kExact);
    } else if (kind != OpKind::kStateAppend) {
      test = BadAdapters(std::move(b), kind, bad);
    } else {
      const ValueId state = b.State("state", F({2, 8, 16}));
      const ValueId rows = b.Floats("rows", F({kT, 16}));
      const ValueId pos = b.Ints("pos", I({kT}), 0, 7);
      const ValueId slot = b.Ints("slot", I({kT}), {0, bad, 1});
      test = OneOp(std::move(b), kind, {state, rows, pos, slot}, OpAttrs(kind),
                   ToleranceClass::kExact);
    }
    RL_ASSIGN_OR_RETURN(std::string refusal, WhyUnsupported(device, test.graph));
    if (!refusal.empty()) return Unsupported(std::move(refusal));
    RL_ASSIGN_OR_RETURN(const auto program, Program::Create(device, test));
    RL_RETURN_IF_ERROR(program->BindAll(test));
    const Status status = program->Run(test.extents);
    if (!status && status.error().message.empty()) return Failed("the error has no text");
    RL_RETURN_IF_ERROR(program->CheckGuards());
  }
  return OkStatus();
}

// A number that is not an op of this version, as a plugin meets it under a newer host: refused, not
// guessed.
Status UnknownOpIsRefused(Suite& suite, Device& device) {
  const rl_plugin_v1& table = suite.plugin->table();
  static_cast<void>(device);
  rl_device* raw = nullptr;
  rl_error error{};
  error.struct_size = sizeof(error);
  std::vector<rl_option> options;
  options.reserve(suite.options.size());
  for (const auto& [key, value] : suite.options) {
    options.push_back({{key.data(), key.size()}, {value.data(), value.size()}});
  }
  const std::string_view name = suite.plugin->name();
  if (CallPlugin(name, "device_open", table.device_open, table.context, suite.device_index,
                 options.data(), static_cast<uint32_t>(options.size()), &raw, &error) != RL_OK) {
    return Failed("device_open: {}", error.message);
  }
  rl_value values[2] = {};
  for (rl_value& value : values) {
    value.dtype = RL_DTYPE_F32;
    value.rank = 1;
    value.dims[0].constant = 4;
    value.lifetime = RL_LIFETIME_TRANSIENT;
    value.name = {"v", 1};
  }
  const uint32_t input = 0, result = 1, attrs = sizeof(uint32_t);
  rl_op op{};
  op.kind = 999999;
  op.input_count = 1;
  op.inputs = &input;
  op.result_count = 1;
  op.results = &result;
  op.attrs_size = sizeof(attrs);
  op.attrs = &attrs;
  rl_graph graph{};
  graph.struct_size = sizeof(graph);
  graph.value_size = sizeof(rl_value);
  graph.op_size = sizeof(rl_op);
  graph.value_count = 2;
  graph.op_count = 1;
  graph.values = values;
  graph.ops = &op;
  graph.max_t = 1;
  graph.max_r = 1;
  rl_op_support support{};
  const int32_t code =
      CallPlugin(name, "query_ops", table.query_ops, raw, &graph, &support, &error);
  CallPlugin(name, "device_close", table.device_close, raw);
  if (code == RL_OK && support.supported != 0) return Failed("op 999999 is said to be supported");
  return OkStatus();
}

}  // namespace

void AddFaultTests(std::vector<NamedTest>& tests) {
  tests.push_back({"Fault.cancelled_plan_works_again", CancelledPlanWorksAgain});
  for (const OpKind kind :
       {OpKind::kGatherRows, OpKind::kGroupedMatMul, OpKind::kStateAppend, OpKind::kAdapterSum,
        OpKind::kRowAdaptedLinear, OpKind::kRowAdaptedGeGluLinear}) {
    tests.push_back(
        {fmt::format("Fault.bad_indices/{}", NameOf(kind)),
         [kind](Suite& suite, Device& device) { return BadIndices(suite, device, kind); }});
  }
  tests.push_back({"Fault.unknown_op_is_refused", UnknownOpIsRefused});
}

}  // namespace rullama::conformance
