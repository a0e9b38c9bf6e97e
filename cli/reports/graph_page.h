// The page of `rullama graph --html`: all blocks folded, then each of them. One thread at a time
// (graph_layout.h).
#pragma once

#include <string>
#include <vector>

#include "cli/reports/graph_drawing.h"

namespace rullama::cli {

// `title` and the names in the parts may be any bytes. Error graph.layout.
Result<std::string> GraphPage(const std::string& title, const std::vector<DrawnPart>& parts,
                              const std::vector<std::string>& device_names);

}  // namespace rullama::cli
