// Generates one answer of the model, from prompt tokens to text.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/loading.h"
#include "core/runtime/generator.h"
#include "samplers/entropy_bound.h"

namespace rullama::cli {

struct AnswerOptions {
  int64_t max_tokens = -1;  // negative: until the turn ends or the context is full
  std::vector<std::string> stop;
  bool chat = false;      // the output has thoughts and tool calls in markers
  bool thinking = false;  // report thoughts
  bool show_progress = true;
  // Receives what the reader sees, whole UTF-8 sequences; an error ends the answer.
  std::function<Status(std::string_view text)> on_text;
  std::function<Status(std::string_view text)> on_thought;
  // Called after each denoising step of canvas number `canvas`; may be empty.
  std::function<Status(int64_t canvas, const CanvasStep& step)> on_step;
  // Called after the last of these callbacks; may be empty.
  std::function<Status()> on_end;
};

struct AnswerTimes {
  double prompt_seconds = 0;  // until the first token was there
  double generate_seconds = 0;
};

struct Answer {
  std::string text;  // what on_text got, in one piece
  std::string thoughts;
  std::vector<nlohmann::json> tool_calls;  // {"name", "arguments"}
  std::vector<int32_t> ids;                // generated, without the end token
  StopReason reason = StopReason::kEndOfGeneration;
  int64_t prompt_tokens = 0;  // evaluated for this answer
  bool denoised = false;
  int64_t canvases = 0;  // of a model that denoises: begun, and all their steps
  int64_t steps = 0;
  AnswerTimes times;
  SessionStats after_first_token;
  SessionStats at_end;
};

// Feeds `prompt` after what the session's slot 0 already holds and generates. A Ctrl-C while
// generating is a stop reason; while the prompt is evaluated it is the error run.cancelled.
Result<Answer> GenerateAnswer(ModelSession& engine, std::span<const int32_t> prompt,
                              const AnswerOptions& options, Console& console);

// "12 prompt tokens, 34.5 t/s; ..." for stderr: fits a terminal of 80 columns.
std::string DescribeAnswer(const Answer& answer);
// The times that -v adds to the statistics.
std::string DescribeTimes(const Answer& answer);
// The record {"type": "final", ...} of --json.
nlohmann::json AnswerAsJson(const Answer& answer, const ModelSession& engine);
// One line, invalid UTF-8 replaced.
std::string JsonLine(const nlohmann::json& value);

}  // namespace rullama::cli
