// Result types of an op from its operand types and attributes: the `infer` hook of every op, which
// is also where wrong use is refused. Errors (kind kRuntime, id "ir.type") name the op, the
// operand, what was found and what was expected.
#pragma once

#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/ir/ops.h"
#include "core/ir/types.h"

namespace rullama {

// `operands` has one entry for each operand of the op; null for an absent optional one.
Result<std::vector<TensorType>> InferTypes(OpKind kind, const OpAttrs& attrs,
                                           std::span<const TensorType* const> operands);

}  // namespace rullama
