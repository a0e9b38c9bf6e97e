// What graphs are lowered for on a device of Vulkan.
#pragma once

#include "backends/gpu/target.h"
#include "backends/vulkan/instance.h"

namespace rullama::vulkan {

// Choices of the options.
struct DriverOptions {
  // The one through which shaders use matrix units.
  MatrixExtension matrix_extension = MatrixExtension::kNone;
  bool subgroups = false;    // the form of the shaders with operations of subgroups
  bool integer_dot = false;  // needs subgroups, and so does the next
  bool persistent = false;   // steps of one row are one dispatch (step_joiner.h)
};

gpu::Target TargetFor(const Facts& facts, const DriverOptions& options);

}  // namespace rullama::vulkan
