// Results of evaluations as text and JSON, and the files that they need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/eval/choice_tasks.h"
#include "cli/eval/divergence.h"
#include "cli/eval/text_chunks.h"

namespace rullama::cli {

nlohmann::json JsonOf(const DivergenceReport& report);
std::string TextOf(const DivergenceReport& report);
nlohmann::json JsonOf(const ChoiceScore& score);
std::string TextOf(const ChoiceScore& score);

// At most `count` tasks, 0: all, of the one file that is named. Errors: eval.file, io.*.
Result<std::vector<ChoiceTask>> ReadChoiceTasks(const std::string& hella_swag,
                                                const std::string& multiple_choice, size_t count);
// The tokens of a chunk of a file of log-probabilities. Errors: eval.file, io.*.
Result<int64_t> ContextOfLogProbs(const std::string& path);

}  // namespace rullama::cli
