#include "cli/answer.h"

#include <optional>
#include <string_view>
#include <utility>

#include "cli/canvas_answer.h"
#include "cli/signals.h"
#include "cli/stopwatch.h"
#include "cli/text_stream.h"

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
  const auto generated = static_cast<int64_t>(answer.ids.size());
  const double seconds = answer.times.generate_seconds;
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

// A prompt that does not fit is refused with advice that the model allows to follow.
Status CheckFits(ModelSession& engine, int64_t prompt, const AnswerOptions& options) {
  const ModelFacts& facts = engine.model().facts();
  const int64_t held = engine.session().past(0);
  const int64_t canvas = facts.denoises() && options.max_tokens != 0 ? facts.canvas.length : 0;
  if (held + prompt + canvas <= engine.capacity()) return OkStatus();
  std::string need = fmt::format("the prompt has {} tokens", prompt);
  if (held > 0) need += fmt::format(", the conversation before it {}", held);
  if (canvas > 0) need += fmt::format(", a canvas {}", canvas);
  const bool can_grow = engine.capacity() < facts.context_length;
  return MakeError(
      ErrorKind::kRuntime, "context.overflow", "{}, but the context holds {}; {}", need,
      engine.capacity(),
      can_grow ? fmt::format("shorten the prompt or raise --ctx-size (this model takes up to {})",
                             facts.context_length)
               : "shorten the prompt: this model takes no longer context");
}

}  // namespace

Result<Answer> GenerateAnswer(ModelSession& engine, std::span<const int32_t> prompt,
                              const AnswerOptions& options, Console& console) {
  RL_RETURN_IF_ERROR(CheckFits(engine, static_cast<int64_t>(prompt.size()), options));
  if (engine.model().facts().denoises()) {
    return GenerateCanvasAnswer(engine, prompt, options, console);
  }
  Answer answer;
  answer.prompt_tokens = static_cast<int64_t>(prompt.size());
  const std::shared_ptr<const std::atomic<bool>> cancelled = CancelFlag();
  Progress progress(console, "prompt");
  GeneratorOptions generator_options;
  generator_options.capacity = engine.capacity();
  generator_options.vocabulary = engine.model().facts().vocabulary;
  generator_options.may_ban_all = !engine.sampler().logit_bias.empty();
  const std::span<const TokenId> ends = engine.tokenizer().end_of_generation_ids();
  generator_options.end_tokens.assign(ends.begin(), ends.end());
  generator_options.cancelled = cancelled.get();
  if (options.show_progress && answer.prompt_tokens > engine.limits().max_rows) {
    generator_options.on_prefill = [&progress](int64_t done, int64_t total) {
      progress.Update(done, total);
    };
  }
  Generator generator(engine.session(), std::move(generator_options));

  const auto start = Clock::now();
  // The plan of single tokens is compiled now, so that nothing is compiled after the first one.
  RL_RETURN_IF_ERROR(engine.session().Prepare(1, DemandMode::kPerOutput));
  RL_ASSIGN_OR_RETURN(const int32_t first, generator.Feed(prompt));
  progress.Clear();
  answer.times.prompt_seconds = SecondsSince(start);
  RL_ASSIGN_OR_RETURN(answer.after_first_token, engine.session().Stats());

  TextStream stream(engine, options, answer);
  Status status;
  const auto on_token = [&](int32_t token) {
    status = stream.Push(token);
    return status.has_value() && !stream.stopped();
  };
  const auto generate_start = Clock::now();
  auto outcome = generator.Generate(first, options.max_tokens, on_token);
  answer.times.generate_seconds = SecondsSince(generate_start);
  RL_RETURN_IF_ERROR(status);
  if (outcome) {
    answer.reason = outcome->reason;
  } else if (outcome.error().id == "run.cancelled") {
    answer.reason = StopReason::kCancelled;  // the device noticed before we did
  } else {
    return tl::unexpected(std::move(outcome).error());
  }
  RL_RETURN_IF_ERROR(stream.Finish());
  RL_ASSIGN_OR_RETURN(answer.at_end, engine.session().Stats());
  return answer;
}

std::string DescribeAnswer(const Answer& answer) {
  const std::string rate = RateText(GenerationRate(answer));
  if (answer.denoised) {
    return fmt::format("{} prompt tokens; {} denoised in {} steps{}; {}", answer.prompt_tokens,
                       answer.ids.size(), answer.steps, rate, InWords(answer.reason));
  }
  return fmt::format("{} prompt tokens{}; {} generated{}; {}", answer.prompt_tokens,
                     RateText(PerSecond(answer.prompt_tokens, answer.times.prompt_seconds)),
                     answer.ids.size(), rate, InWords(answer.reason));
}

std::string DescribeTimes(const Answer& answer) {
  const AnswerTimes& times = answer.times;
  if (!answer.denoised) return fmt::format("first token after {:.3f} s", times.prompt_seconds);
  std::string text =
      fmt::format("prompt {:.3f} s, {} canvases", times.prompt_seconds, answer.canvases);
  if (answer.steps > 0) {
    text += fmt::format(", {:.3f} s a step",
                        times.generate_seconds / static_cast<double>(answer.steps));
  }
  return text;
}

nlohmann::json AnswerAsJson(const Answer& answer, const ModelSession& engine) {
  const auto generated = static_cast<int64_t>(answer.ids.size());
  nlohmann::json record = {
      {"type", "final"},
      {"text", answer.text},
      {"ids", answer.ids},
      {"stop_reason", NameOf(answer.reason)},
      {"seed", engine.sampler().seed},
      {"backend", engine.devices().backend},
      {"device", engine.devices().main().description().name},
      {"prompt_tokens", answer.prompt_tokens},
      {"generated_tokens", generated},
      {"timings",
       {{"load_s", engine.load_seconds()},
        {"prompt_s", answer.times.prompt_seconds},
        {"prompt_per_s", RateAsJson(PerSecond(answer.prompt_tokens, answer.times.prompt_seconds))},
        {"generate_s", answer.times.generate_seconds},
        {"generate_per_s", RateAsJson(GenerationRate(answer))}}},
      {"counters",
       {{"after_first_token", CountersAsJson(answer.after_first_token)},
        {"at_end", CountersAsJson(answer.at_end)}}},
      {"memory_bytes",
       {{"weights", answer.at_end.weight_bytes},
        {"weights_in_file", answer.at_end.weight_file_bytes},
        {"states", answer.at_end.state_bytes},
        {"arena", answer.at_end.arena_bytes},
        {"io", answer.at_end.io_bytes},
        {"workspace", answer.at_end.workspace_bytes}}}};
  if (answer.denoised) {
    record["canvases"] = answer.canvases;
    record["steps"] = answer.steps;
  }
  if (!answer.thoughts.empty()) record["thoughts"] = answer.thoughts;
  if (!answer.tool_calls.empty()) record["tool_calls"] = answer.tool_calls;
  return record;
}

std::string JsonLine(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace rullama::cli
