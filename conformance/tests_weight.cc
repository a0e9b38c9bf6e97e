// The life of weights: they come and go whatever a plugin runs, and each keeps its contents while
// others of its shape do.
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "conformance/check.h"
#include "conformance/guarded_memory.h"
#include "conformance/layer.h"
#include "conformance/suite.h"
#include "core/base/utf8.h"

namespace rullama::conformance {
namespace {

constexpr int64_t kRows = 7,
                  kResults = 67;  // as in cases of matmul, whose kernels there are already

// One block, or for types without blocks a usual length.
int64_t LengthOf(DType dtype) {
  const auto block = static_cast<int64_t>(InfoOf(dtype).block_elements);
  return block == 1 ? 33 : block;
}

// A weight outside of any plan, and its data.
struct LooseWeight {
  GuardedMemory data;
  DeviceWeight weight;  // goes before its data
};

Result<LooseWeight> CreateLoose(Device& device, const TensorType& type, const Bytes& bytes) {
  LooseWeight loose;
  RL_ASSIGN_OR_RETURN(loose.data, GuardedMemory::Create(bytes.size(), "the data of a weight"));
  std::ranges::copy(bytes, loose.data.bytes().begin());
  loose.data.Seal();
  const WeightDesc desc{"weight", type, loose.data.bytes(), RL_WEIGHT_IN_PRODUCTS};
  RL_ASSIGN_OR_RETURN([[maybe_unused]] const WeightLayout layout, device.LayoutWeight(desc));
  RL_ASSIGN_OR_RETURN(loose.weight, device.CreateWeight(desc));
  return loose;
}

// Weights of each type, which no graph reads. A plugin may refuse a type.
Status ComeAndGo(Suite& suite, Device& device) {
  for (const DType dtype : WeightTypes()) {
    CaseBuilder b(SeedOf(suite, "Loose"), kRows);
    const ValueId weight = b.Weight("weight", {dtype, {kResults, LengthOf(dtype)}});
    b.Output(b.Op(OpKind::kCopy, {b.Floats("x", F({kT, 4}))}, OpAttrs(OpKind::kCopy))[0]);
    const TensorType type = b.graph().graph().type(weight);
    const Case test = std::move(b).Finish(ToleranceClass::kExact);
    const auto loose = CreateLoose(device, type, test.data.at("weight"));
    if (loose || loose.error().id == "device.unsupported" ||
        loose.error().id == "device.invalid_argument") {
      continue;
    }
    return Failed("a weight of type {}: {}", NameOf(dtype), loose.error().ToString());
  }
  return OkStatus();
}

// Two products with weights of one shape and type.
Case TwoProducts(uint64_t seed, DType dtype) {
  CaseBuilder b(seed, kRows);
  const int64_t k = LengthOf(dtype);
  const ValueId x = b.Floats("x", F({kT, k}));
  for (const char* name : {"first", "second"}) {
    const ValueId weight = b.Weight(std::string(name) + ".weight", {dtype, {kResults, k}});
    const ValueId product = b.graph().Add(ops::Linear(x, weight), name);
    b.Output(product);
  }
  // Errors of two products are compared with their results, not with the larger terms of their
  // sums. A weight in the place of another is off by as much as the results are.
  return std::move(b).Finish(IsBlockType(dtype) ? ToleranceClass::kComposite
                                                : ToleranceClass::kContraction);
}

// A program and what the reference computes for its case.
class Products {
 public:
  Products(Suite& suite, Device& device, uint64_t seed, DType dtype)
      : suite_(suite), device_(device), test_(TwoProducts(seed, dtype)) {}

  [[nodiscard]] const Case& test() const { return test_; }
  [[nodiscard]] const Bytes& weight() const { return test_.data.at("first.weight"); }

  Status Create() {
    RL_ASSIGN_OR_RETURN(program_, Program::Create(device_, test_));
    return OkStatus();
  }
  void Free() { program_.reset(); }

  Status Check(std::string_view when) {
    RL_RETURN_IF_ERROR(program_->Poison(0xFF));
    RL_RETURN_IF_ERROR(program_->BindAll(test_));
    RL_RETURN_IF_ERROR(program_->Run(test_.extents));
    RL_ASSIGN_OR_RETURN(const auto results, ReadResults(*program_, test_));
    RL_ASSIGN_OR_RETURN(const auto ran, RunReference(test_));
    const Status close = CompareWithReference(test_, ran, results, suite_.manifest.activations);
    if (close) return OkStatus();
    return Failed("two products with weights of one shape, {}: {}", when, close.error().message);
  }

 private:
  Suite& suite_;
  Device& device_;
  const Case test_;
  std::unique_ptr<Program> program_;
};

Status KeptBeside(Suite& suite, Device& device, DType dtype) {
  const uint64_t seed = SeedOf(suite, "Kept");
  Products first(suite, device, seed, dtype), second(suite, device, seed + 1, dtype);
  RL_ASSIGN_OR_RETURN(std::string refusal, WhyUnsupported(device, first.test().graph));
  if (!refusal.empty()) return Unsupported(std::move(refusal));
  const TensorType type(dtype, {kResults, LengthOf(dtype)});
  RL_ASSIGN_OR_RETURN(auto loose, CreateLoose(device, type, second.weight()));
  RL_RETURN_IF_ERROR(first.Create());
  RL_RETURN_IF_ERROR(first.Check("before others came"));
  loose.weight.Reset();
  RL_ASSIGN_OR_RETURN(loose, CreateLoose(device, type, second.weight()));
  RL_RETURN_IF_ERROR(first.Check("after another was freed and one was made"));
  loose.weight.Reset();
  RL_RETURN_IF_ERROR(second.Create());
  RL_RETURN_IF_ERROR(second.Check("together with another plan"));
  RL_RETURN_IF_ERROR(first.Check("after those of another plan came"));
  second.Free();
  return first.Check("after those of another plan had gone");
}

// One type in blocks and one that is not: what keeps weights apart does not look into them.
Status AreKept(Suite& suite, Device& device) {
  constexpr std::array kBlocks = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K};
  constexpr std::array kFloats = {DType::kF32, DType::kF16, DType::kBF16};
  Status refused = OkStatus();
  bool ran = false;
  for (const auto types : {std::span<const DType>(kBlocks), std::span<const DType>(kFloats)}) {
    for (const DType dtype : types) {
      Status status = KeptBeside(suite, device, dtype);
      if (!status && status.error().id != kUnsupportedId) return status;
      ran = ran || status;
      if (status) break;
      refused = std::move(status);
    }
  }
  return ran ? OkStatus() : refused;
}

Status GraphIsDescribed(Suite& suite, Device& device) {
  if (suite.plugin->table().graph_describe == nullptr) {
    return Unsupported("the plugin has no graph_describe");
  }
  RL_ASSIGN_OR_RETURN(const Case test, RichestCase(device, SeedOf(suite, "Describe")));
  RL_ASSIGN_OR_RETURN(const std::string text, device.DescribeGraph(test.graph));
  if (FindInvalidUtf8(text)) return Failed("the description of a graph is not UTF-8");
  return OkStatus();
}

}  // namespace

void AddWeightTests(std::vector<NamedTest>& tests) {
  tests.push_back({"Contract.weights_come_and_go", ComeAndGo});
  tests.push_back({"Contract.weights_are_kept", AreKept});
  tests.push_back({"Contract.graph_is_described", GraphIsDescribed});
}

}  // namespace rullama::conformance
