// The words of the command line before and after CLI11 sees them: the implied command, options that
// rullama does not have, and mistakes in plain English.
// Letters after one dash are never read as several options: "-hf" is not "-h -f". Thread safety:
// none; used by main's thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace rullama::cli {

// The words as CLI11 wants them, last word first, with the implied `run` spelt out, names of
// several letters after one dash ("-sys") as long ones, and "--color" with its value. `app` has all
// its commands. Errors (kUsage): usage.command, usage.unknown_option (with what to use instead),
// usage.option.
Result<std::vector<std::string>> PrepareArguments(std::vector<std::string> words,
                                                  const CLI::App& app);

// The name of an option as CLI11 knows it: "--system" for "-sys".
std::string FullOptionName(const std::string& name);

// Describes the mistake that CLI11 found.
Error DescribeParseError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace rullama::cli
