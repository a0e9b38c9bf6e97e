// Norms that products compute themselves. With one row, a norm is a few microseconds of one
// workgroup and a barrier for all others; each workgroup of the product that reads it can as well
// norm the row for itself (matvec.comp). Of a residual norm, whose sum others read too, the first
// product also writes that sum.
//
// Thread safety: none.
#pragma once

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// Whether the rms_norm at hand is left to all products that read it.
bool LeaveNorm(PlanBuilder& plan);
// Whether the residual_norm at hand is left to the first product that reads it, or a norm of it.
bool LeaveResidualNorm(PlanBuilder& plan);

}  // namespace rullama::gpu
