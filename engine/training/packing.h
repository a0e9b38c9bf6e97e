// The steps of the device that the examples of an optimizer step become. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/runtime/step_rows.h"
#include "engine/training/example.h"

namespace rullama {

// Some examples side by side: each has a slot of its own and positions from 0, so none sees
// another, and what a step computes for an example does not depend on its neighbours.
struct PackedStep {
  StepRows rows;                 // the learnt rows are wanted
  std::vector<int32_t> targets;  // of the wanted rows
  std::vector<int64_t> lines;    // of the examples
};

// In the order of the examples, each into the current step if it fits within `max_t`, else into
// a new one. No example is longer than `max_t`; those without a learnt row are left out.
std::vector<PackedStep> PackExamples(std::span<const Example* const> examples, int64_t max_t);

}  // namespace rullama
