// The table of ops and element types that a plugin runs: its section of docs/ops.md.
#pragma once

#include <string>

#include "conformance/suite.h"

namespace rullama::conformance {

// One row for each op with the element types of its cases that run and of those that are refused.
// Ops are queried, not run.
Result<std::string> OpMatrix(const Suite& suite, Device& device);

}  // namespace rullama::conformance
