// The table of ops and element types that a plugin runs: its section of docs/ops.md.
#pragma once

#include <string>

#include "conformance/suite.h"

namespace rullama::conformance {

// One row for each op: "yes", "no", or the types of its cases that are refused. Ops are asked for,
// not run.
Result<std::string> OpMatrix(const Suite& suite, Device& device);

}  // namespace rullama::conformance
