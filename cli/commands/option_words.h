// Reads and sets the description of an option's value in CLI11, for completion and manual pages.
// Thread safety: pure functions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace rullama::cli {

// The word that stands for the value: "FILE" of `--config FILE`, the name of a positional, or
// CLI11's name of the type. Empty for a flag.
std::string ValueWord(const CLI::Option& option);

// The values that the option accepts, if it lists them.
std::vector<std::string> ChoicesOf(const CLI::Option& option);

// Makes `names`, joined by ", ", the choices of the option. The help shows `word` for its value.
void SetChoices(CLI::Option& option, const std::string& names, const std::string& word);

}  // namespace rullama::cli
