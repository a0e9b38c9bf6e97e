// Questions with answers to choose from, in the files of llama-perplexity.
//
//   HellaSwag        text, six lines for each task: the beginning, the number of the right ending
//                    from 0 on, four endings
//   multiple choice  4 bytes: number of tasks; 4 bytes for each: its place in the file; for each
//   task
//                    the question and two lists of answers, the second of which is not used: 4
//                    bytes: number, the texts, and for each 4 bytes: 1 if it is right. A text is
//                    its length, 4 bytes, and its bytes
//
// Pure functions. Error eval.file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace rullama::cli {

struct ChoiceTask {
  std::string question;
  std::vector<std::string> answers;  // at least two
  std::vector<bool> right;           // for each; one is, or more
};

Result<std::vector<ChoiceTask>> ParseHellaSwag(std::string_view text);
Result<std::vector<ChoiceTask>> ParseMultipleChoice(std::string_view bytes);

// At most `count` tasks, spread over all of them.
std::vector<ChoiceTask> SomeOf(std::vector<ChoiceTask> tasks, size_t count);

}  // namespace rullama::cli
