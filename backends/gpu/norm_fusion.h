// Fuses norms of one row into the GEMVs that read them. A separate norm takes one workgroup a few
// microseconds while all others wait at a barrier, so each workgroup of the GEMV normalises the row
// itself (matvec.comp). The sum of a residual norm has other readers too: the first GEMV stores it.
//
// Thread safety: none.
#pragma once

#include "backends/gpu/plan_builder.h"

namespace rullama::gpu {

// Defers the current rms_norm to all products that read it. Returns false if that is not possible.
bool LeaveNorm(PlanBuilder& plan);
// Defers the current residual_norm to the first product that reads it or a norm of it. Returns
// false if that is not possible.
bool LeaveResidualNorm(PlanBuilder& plan);

}  // namespace rullama::gpu
