// The answer to `rullama __complete WORD... CURRENT`, which the scripts in cli/completion show in a
// shell: what may stand for CURRENT after these words of a command line. It comes from the options
// that --help lists, the names in the Ollama store and the file names of plugins. Nothing is
// loaded. Thread safety: none; used by main's thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace rullama::cli {

// The first line is "files" where the name of a file fits too, else "words". Each further line is a
// candidate that begins with the last of `words`, a tab and its description, which may be empty.
// `words` are those after the name of the program; `app` has all its commands.
std::string CompletionText(const CLI::App& app, std::vector<std::string> words);

}  // namespace rullama::cli
