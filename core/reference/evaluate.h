// Evaluates one op in float64: the oracle for every backend, simple rather than fast. ops.def
// defines the ops; docs/numerics.md defines ties, NaN and infinities.
#pragma once

#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/ir/ops.h"
#include "core/reference/tensor.h"

namespace rullama::reference {

// Evaluates one op; pure, thread-safe. `operands` are in the order of ops.def, null for an absent
// optional one. Operands may be packed; results never are. f32 results keep float64 precision;
// other dtypes are rounded to their grid. An effect returns new states. `t`: the rows of the
// step, which the result of scatter_rows has. Errors: ir.type for operands that do not fit the op;
// ref.index for an id, row, slot or position out of range; gguf.type for a weight type that cannot
// be decoded.
Result<std::vector<Tensor>> EvaluateOp(OpKind kind, const OpAttrs& attrs,
                                       std::span<const Tensor* const> operands, int64_t t = 1);

// state_append on a state that the caller owns. `state` is unpacked and updated in place.
Status AppendInPlace(Tensor& state, const Tensor& rows, const Tensor& pos, const Tensor& slot);
// state_append on the bytes of a state with this dtype and these dims.
Status AppendToMemory(DType dtype, std::span<const int64_t> dims, std::span<std::byte> bytes,
                      const Tensor& rows, const Tensor& pos, const Tensor& slot);

}  // namespace rullama::reference
