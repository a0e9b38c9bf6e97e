// Options and commands of llama.cpp and Ollama that people type out of habit, and what to use in
// rullama instead. Thread safety: constant tables.
#pragma once

#include <span>
#include <string_view>

namespace rullama::cli {

struct ForeignWord {
  std::string_view names;   // separated by spaces: "-ngl --n-gpu-layers"
  std::string_view advice;  // "use ...", "not needed: <reason>" or "not supported: <reason>"
};

std::span<const ForeignWord> ForeignOptions();
std::span<const ForeignWord> ForeignCommands();

// The advice for one name of a table; empty if the table does not have it.
std::string_view AdviceFor(std::span<const ForeignWord> table, std::string_view name);

}  // namespace rullama::cli
