// Options and commands of llama.cpp, Ollama and trainers that people type out of habit, and what to
// use in rullama instead: "use ...", "not needed: <reason>" or "not supported: <reason>". Thread
// safety: constant tables.
#pragma once

#include <string_view>

namespace rullama::cli {

// The advice for an option that `command` does not have; empty if there is none.
std::string_view AdviceOnOption(std::string_view command, std::string_view name);
// The same for a command that does not exist.
std::string_view AdviceOnCommand(std::string_view name);

}  // namespace rullama::cli
