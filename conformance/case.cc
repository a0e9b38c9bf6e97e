#include "conformance/case.h"

#include <rullama/sdk/half.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/gguf/dequantize.h"
#include "core/reference/tensor.h"

namespace rullama::conformance {
namespace {

Graph EmptyGraph(const Extents& extents) {
  const int64_t spare_rows = extents.t == 1 ? 0 : CaseBuilder::kSpareRows;
  Graph graph;
  graph.name = "conformance";
  graph.max_t = extents.t + spare_rows;
  graph.max_r = extents.r + spare_rows;
  return graph;
}

// The places of the f16 scales in a block and how large to make them: quants of a type reach up to
// `largest`, so that weights are of order one.
struct ScalePlace {
  size_t offset;
  double largest;
};
std::vector<ScalePlace> ScalesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return {{0, 8}};
    case DType::kQ4_1:
      return {{0, 15}, {2, 2}};
    case DType::kQ5_0:
      return {{0, 16}};
    case DType::kQ5_1:
      return {{0, 31}, {2, 2}};
    case DType::kQ8_0:
    case DType::kIQ4_NL:
      return {{0, 127}};
    case DType::kQ2_K:
      return {{80, 15 * 3}, {82, 15}};
    case DType::kQ3_K:
      return {{108, 32 * 4}};
    case DType::kQ4_K:
      return {{0, 63 * 15}, {2, 63}};
    case DType::kQ5_K:
      return {{0, 63 * 31}, {2, 63}};
    case DType::kQ6_K:
      return {{208, 127 * 32}};
    case DType::kIQ4_XS:
      return {{0, 32 * 127}};
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return {{0, 15.5 / 4 * 43}};
    case DType::kIQ3_XXS:
      return {{0, 15.5 / 2 * 62}};
    case DType::kIQ3_S:
      return {{0, 31 * 15}};
    case DType::kIQ1_S:
      return {{0, 15}};
    case DType::kTQ1_0:
      return {{52, 1}};
    case DType::kTQ2_0:
      return {{64, 1}};
    default:
      return {};
  }
}

// Four bits of the scale lie in each of the last four words.
void SetScaleOfIq1M(std::span<std::byte> block, uint16_t bits) {
  for (size_t i = 0; i < 4; ++i) {
    std::byte& high = block[48 + 2 * i + 1];
    high = (high & std::byte{0x0F}) | static_cast<std::byte>((bits >> (4 * i) & 15) << 4);
  }
}

// One block of random codes. One block in eight is all zeros, one has subnormal f16 scales.
void FillBlock(DType dtype, std::span<std::byte> block, Random& random) {
  constexpr int64_t kKinds = 8;
  const int64_t kind = random.Int(0, kKinds - 1);
  for (std::byte& byte : block) byte = static_cast<std::byte>(random.Next() & 0xFF);
  if (dtype == DType::kMXFP4) {
    block[0] = static_cast<std::byte>(kind == 1 ? random.Int(0, 2) : random.Int(122, 127));
    return;
  }
  if (dtype == DType::kNVFP4) {
    for (size_t i = 0; i < 4; ++i) block[i] = static_cast<std::byte>(random.Int(0x18, 0x40));
    return;
  }
  const auto random_scale = [&](double largest) {
    double scale = random.Uniform(0.25, 2) / largest;
    if (kind == 0) scale = 0;
    if (kind == 1) scale = random.Uniform(1, 1000) * 0x1p-24;
    return FloatToHalf(static_cast<float>(scale));
  };
  if (dtype == DType::kIQ1_M) return SetScaleOfIq1M(block, random_scale(15));
  for (const ScalePlace& place : ScalesOf(dtype)) {
    const uint16_t bits = random_scale(place.largest);
    std::memcpy(block.data() + place.offset, &bits, sizeof(bits));
  }
}

}  // namespace

// ---- numbers ------------------------------------------------------------------------------------

uint64_t Random::Next() {
  // splitmix64 (Steele, Lea, Flood 2014).
  state_ += 0x9E3779B97F4A7C15U;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

double Random::Uniform(double low, double high) {
  return low + (high - low) * (static_cast<double>(Next() >> 11) * 0x1p-53);
}

int64_t Random::Int(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
}

double Random::Normal() {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += Uniform(0, 1);
  return sum;
}

// ---- cases --------------------------------------------------------------------------------------

CaseBuilder::CaseBuilder(uint64_t seed, int64_t t, int64_t r)
    : extents_{t, r}, random_(seed), builder_(EmptyGraph({t, r})) {}

void CaseBuilder::Store(std::string_view name, const TensorType& type,
                        const std::vector<double>& values) {
  const auto count = static_cast<int64_t>(values.size());
  RL_CHECK(count == type.ElementsAt(extents_));
  reference::Tensor tensor = reference::MakeZeros(type.dtype, reference::DimsAt(type, extents_));
  if (reference::IsInteger(type.dtype)) {
    for (size_t i = 0; i < values.size(); ++i) tensor.i[i] = static_cast<int64_t>(values[i]);
  } else {
    for (size_t i = 0; i < values.size(); ++i) tensor.f[i] = values[i];
  }
  Bytes bytes(type.BytesAt(extents_));
  reference::PackElements(tensor, 0, count, type.dtype, 0, bytes);
  data_[std::string(name)] = std::move(bytes);
}

std::vector<double> CaseBuilder::Draw(const TensorType& type, double low, double high) {
  std::vector<double> values(static_cast<size_t>(type.ElementsAt(extents_)));
  for (double& value : values) value = random_.Uniform(low, high);
  return values;
}

ValueId CaseBuilder::Floats(std::string_view name, const TensorType& type, double low,
                            double high) {
  return Floats(name, type, Draw(type, low, high));
}
ValueId CaseBuilder::Floats(std::string_view name, const TensorType& type,
                            const std::vector<double>& values) {
  Store(name, type, values);
  return builder_.Input(name, type);
}
ValueId CaseBuilder::Ints(std::string_view name, const TensorType& type, int64_t low,
                          int64_t high) {
  std::vector<int32_t> values(static_cast<size_t>(type.ElementsAt(extents_)));
  for (int32_t& value : values) value = static_cast<int32_t>(random_.Int(low, high));
  return Ints(name, type, values);
}
ValueId CaseBuilder::Ints(std::string_view name, const TensorType& type,
                          const std::vector<int32_t>& values) {
  Store(name, type, std::vector<double>(values.begin(), values.end()));
  return builder_.Input(name, type);
}

ValueId CaseBuilder::Weight(std::string_view name, const TensorType& type) {
  if (!IsBlockType(type.dtype)) return Constant(name, type, -1, 1);
  Bytes bytes(type.BytesAt(extents_));
  const size_t block = InfoOf(type.dtype).block_bytes;
  for (size_t at = 0; at < bytes.size(); at += block) {
    FillBlock(type.dtype, std::span(bytes).subspan(at, block), random_);
  }
  data_[std::string(name)] = std::move(bytes);
  return builder_.Constant(name, type);
}

ValueId CaseBuilder::Constant(std::string_view name, const TensorType& type, double low,
                              double high) {
  Store(name, type, Draw(type, low, high));
  return builder_.Constant(name, type);
}

ValueId CaseBuilder::ConstantInts(std::string_view name, const std::vector<int32_t>& values) {
  const TensorType type = I({static_cast<int64_t>(values.size())});
  Store(name, type, std::vector<double>(values.begin(), values.end()));
  return builder_.Constant(name, type);
}

ValueId CaseBuilder::State(std::string_view name, const TensorType& type, double low, double high) {
  Store(name, type, Draw(type, low, high));
  return builder_.State(name, type);
}

std::vector<ValueId> CaseBuilder::Op(OpKind kind, std::vector<ValueId> inputs,
                                     const OpAttrs& attrs) {
  return builder_.Add(kind, std::move(inputs), attrs);
}

void CaseBuilder::Output(ValueId value) {
  if (!builder_.ok()) return;
  builder_.Output(builder_.graph().value(value).name, value, RowDemand::kAll);
}

Case CaseBuilder::Finish(ToleranceClass tolerance) && {
  auto graph = std::move(builder_).Finish();
  if (!graph) fmt::print(stderr, "{}\n", graph.error().ToString());
  RL_CHECK(graph.has_value());
  return {*std::move(graph), extents_, std::move(data_), tolerance};
}

Case OneOp(CaseBuilder&& builder, OpKind kind, std::vector<ValueId> inputs, const OpAttrs& attrs,
           ToleranceClass tolerance) {
  const bool effect = InfoOf(kind).trait == OpTrait::kEffect;
  for (const ValueId result : builder.Op(kind, std::move(inputs), attrs)) {
    if (!effect) builder.Output(result);  // states are read by their name
  }
  return std::move(builder).Finish(tolerance);
}

std::vector<DType> WeightTypes() {
  std::vector<DType> types;
  for (const DTypeInfo& info : kDTypes) {
    const bool number = !reference::IsInteger(info.dtype) && info.dtype != DType::kF64;
    if (number && CanDequantize(info.dtype)) types.push_back(info.dtype);
  }
  return types;
}

std::vector<CaseSpec> AllCases() {
  std::vector<CaseSpec> cases;
  AddStructureCases(cases);
  AddPointwiseCases(cases);
  AddReductionCases(cases);
  AddMatMulCases(cases);
  AddNormCases(cases);
  AddMediaCases(cases);
  AddAttentionCases(cases);
  AddAttentionGradientCases(cases);
  AddStateCases(cases);
  AddOptimizerCases(cases);
  AddSamplingCases(cases);
  AddTrainingCases(cases);
  return cases;
}

}  // namespace rullama::conformance
