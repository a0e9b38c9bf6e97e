// One op in float64: the oracle every backend is compared with. Slow and plain on purpose. What an
// op means is in ops.def; ties, NaN and infinities are in docs/numerics.md.
#pragma once

#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/ir/ops.h"
#include "core/reference/tensor.h"

namespace rullama::reference {

// Evaluates one op; pure, thread-safe. `operands` in the order of ops.def, null for an absent
// optional one. Operands may be packed; results never are. f32 results keep float64 precision,
// other dtypes keep values of their grid. A state_append returns a new state.
// Errors: ir.type for operands that do not fit the op; ref.index for an id, slot or position out of
// range; gguf.type for a weight type that cannot be decoded.
Result<std::vector<Tensor>> EvaluateOp(OpKind kind, const OpAttrs& attrs,
                                       std::span<const Tensor* const> operands);

// What state_append does, on a state that the caller owns: `state` is unpacked and written in
// place.
Status AppendInPlace(Tensor& state, const Tensor& rows, const Tensor& pos, const Tensor& slot);
// The same on the bytes of a state of this dtype and these dims.
Status AppendToMemory(DType dtype, std::span<const int64_t> dims, std::span<std::byte> bytes,
                      const Tensor& rows, const Tensor& pos, const Tensor& slot);

}  // namespace rullama::reference
