// The rules of Chrome's JSON format of traces that its viewers rely on
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). Pure function.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rullama::cli_test {

// Empty if the slices of each track nest, the parts of each asynchronous event are in pairs, and
// processes and tracks have names, each one; else the fault.
std::string TraceFault(const nlohmann::json& trace);

}  // namespace rullama::cli_test
