#include "core/reference/evaluate.h"

#include <utility>

#include "core/ir/infer.h"
#include "core/reference/kernels.h"

namespace rullama::reference {
namespace {

Kernel KernelOf(OpKind kind) {
  switch (kind) {
#define RL_OP(id, Name, name, inputs, results, attributes, traits, doc) \
  case OpKind::k##Name:                                                 \
    return Eval##Name;
#include <rullama/abi/ops.def>
  }
  return nullptr;
}

// Kernels read matrices and caches as they are stored; all other operands arrive unpacked. An op
// that writes a state also gets the state unpacked.
bool ReadsPacked(const OpInfo& info, size_t operand) {
  if (info.trait == OpTrait::kEffect) return false;
  switch (info.operands[operand].role) {
    case OperandRole::kWeight:
    case OperandRole::kTable:
    case OperandRole::kState:
      return true;
    case OperandRole::kData:
    case OperandRole::kIndex:
      return false;
  }
  return false;
}

// Type inference requires sizes of at least 1, so a dimension of 0 rows is replaced by a symbol.
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
                                       std::span<const Tensor* const> operands, int64_t t) {
  const OpInfo* info = FindOp(kind);
  const Kernel kernel = KernelOf(kind);
  if (info == nullptr || kernel == nullptr) {
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
    if (ready[i]->packed.empty() || ReadsPacked(*info, i)) continue;
    RL_ASSIGN_OR_RETURN(Tensor tensor, Unpack(*ready[i]));
    unpacked.push_back(std::move(tensor));
    ready[i] = &unpacked.back();
  }
  std::vector<Tensor> results;
  results.reserve(result_types.size());
  for (const TensorType& type : result_types) {
    results.push_back(MakeZeros(type.dtype, DimsAt(type, {.t = t, .r = 0})));
  }
  RL_RETURN_IF_ERROR(kernel(Call{kind, attrs, ready, results}));
  return results;
}

}  // namespace rullama::reference
