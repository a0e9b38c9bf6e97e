// Attention of many rows on matrix units, for ops_attention.cc.
#pragma once

#include "backends/vulkan/plan_builder.h"

namespace rullama::vulkan {

// Appends the attention at hand if the device, its shape and its types allow it.
bool AttentionOnMatrixUnits(PlanBuilder& plan);

}  // namespace rullama::vulkan
