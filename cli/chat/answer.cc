#include "cli/chat/answer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "cli/chat/media_input.h"

namespace rullama::cli {
namespace {

nlohmann::json CountersAsJson(const SessionStats& stats) {
  return {{"steps", stats.steps},
          {"plans", stats.plans},
          {"compilations", stats.compilations},
          {"allocations", stats.allocations},
          {"recordings", stats.recordings},
          {"dispatches", stats.dispatches}};
}

// Tokens per second; nothing for fewer than two, since the time of a single token is dominated by
// other work.
std::optional<double> PerSecond(int64_t tokens, double seconds) {
  if (tokens < 2 || seconds <= 0) return std::nullopt;
  return static_cast<double>(tokens) / seconds;
}

// The first token comes with the prompt, except on a canvas.
std::optional<double> GenerationRate(const Answer& answer) {
  const int64_t generated = std::ssize(answer.completion.ids);
  const double seconds = answer.completion.generate_seconds;
  if (answer.denoised) return PerSecond(generated, seconds);
  if (generated < 2 || seconds <= 0) return std::nullopt;
  return static_cast<double>(generated - 1) / seconds;
}

// ", 34.5 t/s", or nothing.
std::string RateText(std::optional<double> rate) {
  constexpr double kNoDecimalsFrom = 1000;
  if (!rate) return {};
  return *rate < kNoDecimalsFrom ? fmt::format(", {:.1f} t/s", *rate)
                                 : fmt::format(", {:.0f} t/s", *rate);
}

nlohmann::json RateAsJson(std::optional<double> rate) {
  return rate ? nlohmann::json(*rate) : nlohmann::json();
}

std::string_view InWords(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfGeneration:
      return "end of turn";
    case StopReason::kMaxTokens:
      return "token limit";
    case StopReason::kContextFull:
      return "context full";
    case StopReason::kCancelled:
      return "interrupted";
    case StopReason::kStopped:
      return "stop text";
  }
  return "unknown";
}

// Advice in words of the command line for a prompt that does not fit.
Error WithAdvice(Error error, const ModelInfo& model) {
  if (error.id != "context.overflow") return error;
  const std::string advice =
      model.capacity < model.context_length
          ? fmt::format("shorten the prompt or raise --ctx-size (this model takes up to {})",
                        model.context_length)
          : "shorten the prompt: this model takes no longer context";
  error.message = fmt::format("{}; {}", error.finding(), advice);
  return error;
}

// Hands the events of one answer to its view.
class AnswerReader {
 public:
  AnswerReader(const ModelInfo& model, const AnswerView& view, Console& console)
      : model_(model), view_(view), progress_(console, "prompt") {
    answer_.denoised = model.canvas_length > 0;
  }

  Result<Answer> Read(Generation& generation) {
    const Status status = ReadEvents(generation);
    progress_.Clear();
    if (view_.on_end) RL_RETURN_IF_ERROR(view_.on_end());
    RL_RETURN_IF_ERROR(status);
    answer_.completion = generation.completion();
    if (answer_.completion.reason == StopReason::kCancelled && read_ < total_) {
      return MakeError(ErrorKind::kRuntime, "run.cancelled", "stopped after {} of {} tokens", read_,
                       total_);
    }
    return std::move(answer_);
  }

 private:
  Status ReadEvents(Generation& generation) {
    total_ = generation.completion().prompt_tokens;
    for (;;) {
      RL_ASSIGN_OR_RETURN(const std::optional<Event> event, generation.Next());
      if (!event) return OkStatus();
      if (event->kind != Event::Kind::kProgress) progress_.Clear();
      RL_RETURN_IF_ERROR(Take(*event));
    }
  }

  Status Take(const Event& event) {
    switch (event.kind) {
      case Event::Kind::kProgress:
        TakeProgress(event);
        return OkStatus();
      case Event::Kind::kText:
        return view_.on_text ? view_.on_text(event.text) : OkStatus();
      case Event::Kind::kThinking:
        return view_.on_thought ? view_.on_thought(event.text) : OkStatus();
      case Event::Kind::kToolCall:
        return view_.on_call ? view_.on_call(event.call) : OkStatus();
      case Event::Kind::kDraft:
        answer_.canvases = event.draft.canvas + 1;
        ++answer_.steps;
        return view_.on_step ? view_.on_step(event) : OkStatus();
    }
    return OkStatus();
  }

  void TakeProgress(const Event& event) {
    read_ = event.done;
    const int64_t read = event.done - event.reused, to_read = event.total - event.reused;
    if (read > 0 && to_read > model_.chunk) progress_.Update(read, to_read);
  }

  const ModelInfo& model_;
  const AnswerView& view_;
  Progress progress_;
  Answer answer_;
  int64_t read_ = 0;  // tokens of the prompt, and all of them
  int64_t total_ = 0;
};

}  // namespace

Result<Answer> GenerateAnswer(Engine& engine, const Request& request, const AnswerView& view,
                              Console& console) {
  auto generation = engine.Submit(request);
  if (!generation) {
    return tl::unexpected(WithAdvice(std::move(generation).error(), engine.info()));
  }
  if (const auto& ignored = generation->completion().ignored_keywords; !ignored.empty()) {
    console.Warn(fmt::format("keywords of the schema or of tools that have no effect: {}",
                             fmt::join(ignored, ", ")));
  }
  if (const auto& left = generation->completion().unenforced_keywords; !left.empty()) {
    console.Warn(fmt::format("calls are not held to {}", fmt::join(left, ", ")));
  }
  const auto& media = generation->completion().media;
  if (view.on_media && !media.empty()) view.on_media(media);
  return AnswerReader(engine.info(), view, console).Read(*generation);
}

std::string DescribeAnswer(const Answer& answer) {
  const Completion& completion = answer.completion;
  const std::string rate = RateText(GenerationRate(answer));
  if (answer.denoised) {
    return fmt::format("{} prompt tokens; {} denoised in {} steps{}; {}", answer.prompt_tokens(),
                       completion.ids.size(), answer.steps, rate, InWords(completion.reason));
  }
  return fmt::format("{} prompt tokens{}; {} generated{}; {}", answer.prompt_tokens(),
                     RateText(PerSecond(answer.prompt_tokens(), completion.prompt_seconds)),
                     completion.ids.size(), rate, InWords(completion.reason));
}

std::string DescribeTimes(const Answer& answer) {
  const Completion& completion = answer.completion;
  if (!answer.denoised) {
    std::string text = fmt::format("first token after {:.3f} s", completion.prompt_seconds);
    if (!completion.media.empty()) {
      text += fmt::format(" ({:.3f} s for pictures and sound)", completion.encode_seconds);
    }
    const DraftCounts& drafts = completion.drafts;
    if (drafts.drafted > 0) {
      text += fmt::format(", {} of {} drafted tokens accepted", drafts.accepted, drafts.drafted);
    }
    return text;
  }
  std::string text =
      fmt::format("prompt {:.3f} s, {} canvases", completion.prompt_seconds, answer.canvases);
  if (answer.steps > 0) {
    text += fmt::format(", {:.3f} s a step",
                        completion.generate_seconds / static_cast<double>(answer.steps));
  }
  return text;
}

nlohmann::json AnswerAsJson(const Answer& answer, const ModelInfo& model) {
  const Completion& completion = answer.completion;
  nlohmann::json record = {
      {"type", "final"},
      {"text", completion.text},
      {"ids", completion.ids},
      {"stop_reason", NameOf(completion.reason)},
      {"seed", completion.seed},
      {"backend", model.backend},
      {"device", model.device},
      {"prompt_tokens", answer.prompt_tokens()},
      {"generated_tokens", completion.ids.size()},
      {"timings",
       {{"load_s", model.load_seconds},
        {"prompt_s", completion.prompt_seconds},
        {"prompt_per_s", RateAsJson(PerSecond(answer.prompt_tokens(), completion.prompt_seconds))},
        {"generate_s", completion.generate_seconds},
        {"generate_per_s", RateAsJson(GenerationRate(answer))}}},
      {"counters",
       {{"after_first_token", CountersAsJson(completion.after_prompt)},
        {"at_end", CountersAsJson(completion.at_end)}}},
      {"memory_bytes",
       {{"weights", completion.at_end.weight_bytes},
        {"weights_in_file", completion.at_end.weight_file_bytes},
        {"states", completion.at_end.state_bytes},
        {"arena", completion.at_end.arena_bytes},
        {"io", completion.at_end.io_bytes},
        {"workspace", completion.at_end.workspace_bytes}}}};
  if (completion.drafts.drafted > 0) {
    record["drafts"] = {{"drafted", completion.drafts.drafted},
                        {"accepted", completion.drafts.accepted}};
  }
  if (answer.denoised) {
    record["canvases"] = answer.canvases;
    record["steps"] = answer.steps;
  }
  if (!completion.media.empty()) record["timings"]["encode_s"] = completion.encode_seconds;
  for (const MediumFacts& medium : completion.media) {
    record["media"].push_back(MediumAsJson(medium));
  }
  if (!completion.thoughts.empty()) record["thoughts"] = completion.thoughts;
  for (const ToolCall& call : completion.tool_calls) {
    record["tool_calls"].push_back(CallAsJson(call));
  }
  return record;
}

nlohmann::json StepAsJson(const Event& step) {
  const CanvasDraft& draft = step.draft;
  const std::vector<bool> accepted(draft.accepted.begin(), draft.accepted.end());
  return {{"type", "step"},
          {"canvas", draft.canvas},
          {"step", step.done - 1},
          {"max_steps", step.total},
          {"temperature", draft.temperature},
          {"mean_entropy", draft.mean_entropy},
          {"accepted_count", std::ranges::count(accepted, true)},
          {"accepted", accepted},
          {"entropy", draft.entropy},
          {"ids", draft.ids}};
}

nlohmann::json CallAsJson(const ToolCall& call) {
  auto arguments = nlohmann::json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
  if (arguments.is_discarded()) arguments = call.arguments;  // of a call that was cut off
  return {{"name", call.name}, {"arguments", std::move(arguments)}};
}

}  // namespace rullama::cli
