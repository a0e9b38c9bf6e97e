#include "cli/canvas_answer.h"

#include <memory>
#include <utility>

#include "cli/signals.h"
#include "cli/stopwatch.h"
#include "cli/text_stream.h"
#include "engine/canvas_generator.h"
#include "engine/session_canvas.h"

namespace rullama::cli {

Result<Answer> GenerateCanvasAnswer(ModelSession& engine, std::span<const int32_t> prompt,
                                    const AnswerOptions& options, Console& console) {
  Answer answer;
  answer.denoised = true;
  answer.prompt_tokens = static_cast<int64_t>(prompt.size());
  const std::shared_ptr<const std::atomic<bool>> cancelled = CancelFlag();
  RL_ASSIGN_OR_RETURN(const auto random, MakeCanvasRandom(engine.config().sampler.diffusion.random,
                                                          engine.sampler().seed));
  CanvasGeneratorOptions generator_options = CanvasOptionsOf(engine);
  generator_options.cancelled = cancelled.get();
  Progress progress(console, "prompt");
  if (options.show_progress && answer.prompt_tokens > engine.limits().max_rows) {
    generator_options.on_prefill = [&progress](int64_t done, int64_t total) {
      progress.Update(done, total);
    };
  }
  CanvasGenerator generator(engine.session(), *random, std::move(generator_options));

  const auto start = Clock::now();
  RL_RETURN_IF_ERROR(engine.session().Prepare(engine.model().facts().canvas.length,
                                              DemandMode::kAllRows, kDenoiseGraph));
  RL_RETURN_IF_ERROR(generator.Feed(prompt));
  progress.Clear();
  answer.times.prompt_seconds = SecondsSince(start);
  RL_ASSIGN_OR_RETURN(answer.after_first_token, engine.session().Stats());

  TextStream stream(engine, options, answer);
  Status status;
  CanvasGenerator::Callbacks callbacks;
  callbacks.on_step = [&](int64_t canvas, const CanvasStep& step) {
    answer.canvases = canvas + 1;
    ++answer.steps;
    if (options.on_step) status = options.on_step(canvas, step);
    return status.has_value();
  };
  callbacks.on_canvas = [&](std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) {
      status = stream.Push(token);
      if (!status || stream.stopped()) return false;
    }
    return true;
  };
  const auto generate_start = Clock::now();
  auto outcome = generator.Generate(options.max_tokens, callbacks);
  answer.times.generate_seconds = SecondsSince(generate_start);
  RL_RETURN_IF_ERROR(status);
  if (options.on_end) RL_RETURN_IF_ERROR(options.on_end());
  if (!outcome && outcome.error().id != "run.cancelled") {
    return tl::unexpected(std::move(outcome).error());
  }
  answer.reason = outcome ? outcome->reason : StopReason::kCancelled;
  RL_RETURN_IF_ERROR(stream.Finish());
  RL_ASSIGN_OR_RETURN(answer.at_end, engine.session().Stats());
  return answer;
}

nlohmann::json StepAsJson(int64_t canvas, const CanvasStep& step) {
  std::vector<bool> accepted;
  for (const float mark : step.reply->accepted) accepted.push_back(mark != 0);
  return {{"type", "step"},
          {"canvas", canvas},
          {"step", step.index},
          {"max_steps", step.max_steps},
          {"temperature", step.temperature},
          {"mean_entropy", step.mean_entropy},
          {"accepted_count", step.accepted},
          {"accepted", accepted},
          {"entropy", step.reply->entropy},
          {"ids", step.reply->best}};
}

}  // namespace rullama::cli
