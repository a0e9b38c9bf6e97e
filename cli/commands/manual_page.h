// The manual pages, in the man(7) macros, from the commands and options that --help lists:
// rullama(1), and rullama-COMMAND(1) for each command. Thread safety: pure functions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace rullama::cli {

// "rullama", "rullama-run", ...
std::vector<std::string> ManualPageNames(const CLI::App& app);

// The page with this name, empty if there is none. `date` (year-month-day) stands in its last line.
std::string ManualPage(const CLI::App& app, const std::string& name, const std::string& date);

}  // namespace rullama::cli
