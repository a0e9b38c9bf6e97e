#include "core/reference/evaluate.h"

#include <utility>

#include "core/ir/infer.h"
#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

constexpr uint32_t Bit(int operand) { return 1u << operand; }

KernelInfo KernelOf(OpKind kind) {
  switch (kind) {
    case OpKind::kReshape:
    case OpKind::kCopy:
      return {EvalReshape};
    case OpKind::kSlice:
      return {EvalSlice};
    case OpKind::kConcat:
      return {EvalConcat};
    case OpKind::kCast:
      return {EvalCast};
    case OpKind::kGatherRows:
      return {EvalGatherRows, Bit(0)};
    case OpKind::kGatherLast:
      return {EvalGatherLast};
    case OpKind::kUnary:
      return {EvalUnary};
    case OpKind::kBinary:
      return {EvalBinary};
    case OpKind::kScale:
      return {EvalScale};
    case OpKind::kAffine:
      return {EvalAffine};
    case OpKind::kSelect:
      return {EvalSelect};
    case OpKind::kWhere:
      return {EvalWhere};
    case OpKind::kEntropy:
      return {EvalEntropy};
    case OpKind::kGroupedMatMul:
      return {EvalGroupedMatMul, Bit(1)};
    case OpKind::kMoeFfn:
      return {EvalMoeFfn, Bit(3) | Bit(4) | Bit(5)};
    case OpKind::kSoftEmbed:
      return {EvalSoftEmbed, Bit(2)};
    case OpKind::kEntropyAccept:
      return {EvalEntropyAccept};
    case OpKind::kReduce:
      return {EvalReduce};
    case OpKind::kArgMax:
      return {EvalArgMax};
    case OpKind::kTopK:
      return {EvalTopK};
    case OpKind::kCumSum:
      return {EvalCumSum};
    case OpKind::kSoftmax:
      return {EvalSoftmax};
    case OpKind::kMatMul:
      return {EvalMatMul, Bit(1)};
    case OpKind::kRmsNorm:
      return {EvalRmsNorm};
    case OpKind::kSoftcap:
      return {EvalSoftcap};
    case OpKind::kGeGlu:
      return {EvalGeGlu};
    case OpKind::kGeGluLinear:
      return {EvalGeGluLinear, Bit(1) | Bit(2)};
    case OpKind::kResidualNorm:
      return {EvalResidualNorm};
    case OpKind::kRope:
      return {EvalRope};
    case OpKind::kAttention:
      return {EvalAttention, Bit(3) | Bit(4)};
    case OpKind::kAttentionScores:
      return {EvalAttentionScores, Bit(2)};
    case OpKind::kAttentionMix:
      return {EvalAttentionMix, Bit(2)};
    case OpKind::kStateAppend:
      return {EvalStateAppend};
    case OpKind::kPleInject:
      return {EvalPleInject, Bit(2) | Bit(3)};
    case OpKind::kPenalties:
      return {EvalPenalties, Bit(1)};
    case OpKind::kBiasAdd:
      return {EvalBiasAdd};
    case OpKind::kTopPMask:
      return {EvalTopPMask};
    case OpKind::kMinPMask:
      return {EvalMinPMask};
    case OpKind::kTypicalPMask:
      return {EvalTypicalPMask};
    case OpKind::kRandomUniform:
      return {EvalRandomUniform};
    case OpKind::kCategorical:
      return {EvalCategorical};
  }
  return {nullptr};
}

// Type inference works on sizes of at least 1, so a dimension of no rows is named by a symbol.
TensorType TypeOf(const Tensor& tensor) {
  TensorType type;
  type.dtype = tensor.dtype;
  type.rank = static_cast<int>(tensor.dims.size());
  for (int axis = 0; axis < type.rank && axis < kMaxRank; ++axis) {
    const int64_t size = tensor.dims[static_cast<size_t>(axis)];
    type.dim(axis) = size == 0 ? Dim::R() : Dim(size);
  }
  return type;
}

constexpr Extents kNoRows{.t = 1, .r = 0};

Status CheckHolder(const OpInfo& info, size_t index, const Tensor& tensor) {
  const auto count = static_cast<uint64_t>(tensor.elements());
  if (!tensor.packed.empty()) {
    if (tensor.packed.size() == RowBytes(tensor.dtype, count)) return OkStatus();
  } else if (IsInteger(tensor.dtype) ? tensor.i.size() == count : tensor.f.size() == count) {
    return OkStatus();
  }
  return MakeError(ErrorKind::kRuntime, "ref.size",
                   "{}: operand {} does not hold the {} elements of its dims", info.name,
                   info.operands[index].name, count);
}

}  // namespace

Result<std::vector<Tensor>> EvaluateOp(OpKind kind, const OpAttrs& attrs,
                                       std::span<const Tensor* const> operands) {
  const OpInfo* info = FindOp(kind);
  const KernelInfo kernel = KernelOf(kind);
  if (info == nullptr || kernel.kernel == nullptr) {
    return MakeError(ErrorKind::kRuntime, "ir.type", "unknown op {}", static_cast<uint32_t>(kind));
  }
  std::vector<TensorType> types;
  types.reserve(operands.size());
  std::vector<const TensorType*> type_pointers;
  type_pointers.reserve(operands.size());
  for (const Tensor* tensor : operands) {
    if (tensor != nullptr) types.push_back(TypeOf(*tensor));
    type_pointers.push_back(tensor == nullptr ? nullptr : &types.back());
  }
  RL_ASSIGN_OR_RETURN(const std::vector<TensorType> result_types,
                      InferTypes(kind, attrs, type_pointers));

  std::vector<Tensor> unpacked;
  unpacked.reserve(operands.size());
  std::vector<const Tensor*> ready(operands.begin(), operands.end());
  for (size_t i = 0; i < ready.size(); ++i) {
    if (ready[i] == nullptr) continue;
    RL_RETURN_IF_ERROR(CheckHolder(*info, i, *ready[i]));
    if (ready[i]->packed.empty() || (kernel.reads_packed >> i & 1u) != 0) continue;
    RL_ASSIGN_OR_RETURN(Tensor tensor, Unpack(*ready[i]));
    unpacked.push_back(std::move(tensor));
    ready[i] = &unpacked.back();
  }
  std::vector<Tensor> results;
  results.reserve(result_types.size());
  for (const TensorType& type : result_types) {
    results.push_back(MakeZeros(type.dtype, DimsAt(type, kNoRows)));
  }
  RL_RETURN_IF_ERROR(kernel.kernel(Call{kind, attrs, ready, results}));
  return results;
}

}  // namespace rullama::reference
