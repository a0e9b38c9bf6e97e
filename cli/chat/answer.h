// One answer of the model: shows its parts as they come, and says in the end what it took.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "cli/terminal/console.h"
#include "engine/api/engine.h"

namespace rullama::cli {

// Receives the parts of an answer; an error ends it. Members may be empty.
struct AnswerView {
  std::function<void(std::span<const MediumFacts> media)> on_media = {};  // first, if there are any
  std::function<Status(std::string_view text)> on_text = {};              // whole UTF-8 sequences
  std::function<Status(std::string_view text)> on_thought = {};
  std::function<Status(const ToolCall& call)> on_call = {};
  std::function<Status(const Event& step)> on_step = {};  // a kDraft
  std::function<Status()> on_end = {};                    // after the last of the others
};

struct Answer {
  Completion completion;
  bool denoised = false;
  int64_t canvases = 0;  // of a model that denoises: begun, and all their steps
  int64_t steps = 0;

  // Tokens of the prompt that were evaluated for this answer.
  [[nodiscard]] int64_t prompt_tokens() const {
    return completion.prompt_tokens - completion.cached_tokens;
  }
  // Whether it ends in text, so that the line is still open.
  [[nodiscard]] bool ends_in_text() const {
    return !completion.text.empty() && completion.tool_calls.empty();
  }
};

// Answers a request, with the progress of a long prompt on the console. A Ctrl-C while the answer
// is written is a stop reason; while the prompt is evaluated it is the error run.cancelled. Errors:
// those of Engine::Submit and Generation::Next.
Result<Answer> GenerateAnswer(Engine& engine, const Request& request, const AnswerView& view,
                              Console& console);

// "12 prompt tokens, 34.5 t/s; ..." for stderr: fits a terminal of 80 columns.
std::string DescribeAnswer(const Answer& answer);
// The times that -v adds to the statistics.
std::string DescribeTimes(const Answer& answer);
// The record {"type": "final", ...} of --json.
nlohmann::json AnswerAsJson(const Answer& answer, const ModelInfo& model);
// The record {"type": "step", ...} of --json for a kDraft.
nlohmann::json StepAsJson(const Event& step);
// A call as {"name", "arguments"}.
nlohmann::json CallAsJson(const ToolCall& call);

}  // namespace rullama::cli
