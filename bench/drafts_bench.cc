// Measures drafts by the drafter of a model: what their steps cost, and what they gain.
//
//   drafts_bench MODEL BACKEND DRAFTER [TOKENS [ROUNDS [ACCEPTANCES [KEY=VALUE...]]]]
//
// First the medians of steps that check 1 to 8 rows of one sequence, and of drafts of 1 to 8
// tokens. Then, for each of ACCEPTANCES (0,0.5,0.75,0.9), greedy answers of TOKENS tokens without a
// drafter and with one whose tokens count as right with that probability, in turns, and how much
// faster the median of the latter is.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <ratio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_session.h"
#include "engine/drafts/assistant_drafter.h"
#include "engine/drafts/draft_model.h"
#include "engine/engine_access.h"
#include "engine/scheduling/batch_session.h"

namespace rullama::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostRows = 8;
constexpr int kStepRounds = 15;
constexpr int64_t kPromptTokens = 64;

std::vector<int32_t> Prompt() {
  std::vector<int32_t> ids = {2};
  while (std::ssize(ids) < kPromptTokens) ids.push_back(500 + 7 * static_cast<int32_t>(ids.size()));
  return ids;
}

// The median time in milliseconds, after a run that compiles plans.
double Milliseconds(const std::function<void()>& work) {
  work();
  std::vector<double> times;
  for (int i = 0; i < kStepRounds; ++i) {
    const auto start = Clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return MedianOf(times);
}

LoadedModel Load(const EngineOptions& options, Notices& notices) {
  return Must(LoadModel(Must(ConfigOf(options)), {}, notices));
}

void MeasureSteps(const EngineOptions& options) {
  StderrNotices notices;
  LoadedModel model = Load(options, notices);
  const std::optional<AssistantFile> assistant = Must(FindAssistantFor(model, {}, notices));
  if (!assistant) {
    fmt::print(stderr, "the model has no drafter\n");
    std::exit(1);
  }
  const ModelSessionOptions session_options =
      WithDrafts({.outputs = GraphOutputs::kBatch}, kMostRows, &*assistant);
  const auto session = Must(ModelSession::Open(std::move(model), session_options, {}, notices));
  BatchSession batch(session->session(), session->graphs(), session->model().facts().vocabulary);
  std::vector<int32_t> tokens = Prompt();
  RowRequest row{.slot = 0, .sampling = {.temperature = 0}};
  row.token = Must(Must(batch.Read(0, tokens, std::span(&row, 1))).front().token);
  tokens.push_back(row.token);
  const int32_t past = session->session().past(0);
  double first = 0;
  for (int64_t count = 1; count <= kMostRows; ++count) {
    const std::vector<RowRequest> rows(static_cast<size_t>(count), row);
    const double time = Milliseconds([&] {
      Must(batch.Decode(rows));
      Must(session->session().SetPast(0, past));
    });
    if (count == 1) first = time;
    fmt::print("step of {} rows: {:.3f} ms, {:.3f} of one row\n", count, time, time / first);
  }
  AssistantDrafter drafter(session->session(), *session->graphs().drafts, {});
  for (const int64_t count : {1, 2, 3, 4, 6, 8}) {
    DraftRequest request{.slot = 0, .tokens = tokens, .most = count};
    const double time = Milliseconds([&] {
      request.draft.clear();
      Must(drafter.Draft(std::span(&request, 1)));
    });
    fmt::print("draft of {} tokens: {:.3f} ms, {:.3f} of a step\n", count, time, time / first);
  }
}

std::shared_ptr<Engine> Open(EngineOptions options, bool drafts, double acceptance) {
  StderrNotices notices;
  if (!drafts) {
    std::erase_if(options.settings, [](const Setting& set) { return set.key == "drafts.model"; });
    options.settings.push_back({"drafts.mtp", "false"});
  }
  return Must(
      EngineAccess::Open(Load(options, notices), {.draft_acceptance = acceptance}, notices));
}

Completion Answer(Engine& engine, int64_t tokens) {
  Request request{.ids = Prompt(), .max_tokens = tokens, .reuse_prefix = false, .ignore_end = true};
  request.sampling.temperature = 0;
  return Must(Must(engine.Submit(request)).Wait());
}

// Tokens per second after the first one.
double RateOf(const Completion& answer) {
  return static_cast<double>(std::ssize(answer.ids) - 1) / answer.generate_seconds;
}

void MeasureGain(const EngineOptions& options, double acceptance, int64_t tokens, int64_t rounds) {
  const auto plain = Open(options, false, acceptance);
  const auto drafting = Open(options, true, acceptance);
  Answer(*plain, tokens);  // compiles plans
  Answer(*drafting, tokens);
  std::vector<double> without;
  std::vector<double> with;
  DraftCounts drafts;
  int64_t steps = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    without.push_back(RateOf(Answer(*plain, tokens)));
    const Completion answer = Answer(*drafting, tokens);
    with.push_back(RateOf(answer));
    drafts.drafted += answer.drafts.drafted;
    drafts.accepted += answer.drafts.accepted;
    steps += std::ssize(answer.ids) - answer.drafts.accepted;
  }
  fmt::print(
      "acceptance {}: {:.2f} without, {:.2f} tokens/s with drafts, {:.3f} times; {:.2f} drafted "
      "and {:.2f} accepted a step\n",
      acceptance, MedianOf(without), MedianOf(with), MedianOf(with) / MedianOf(without),
      static_cast<double>(drafts.drafted) / static_cast<double>(steps),
      static_cast<double>(drafts.accepted) / static_cast<double>(steps));
}

std::vector<double> NumbersOf(const std::string& list) {
  std::vector<double> numbers;
  for (size_t at = 0; at < list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    numbers.push_back(std::strtod(list.substr(at, comma - at).c_str(), nullptr));
    at = comma + 1;
  }
  return numbers;
}

}  // namespace
}  // namespace rullama::bench

int main(int argc, char** argv) {
  using namespace rullama::bench;  // NOLINT(google-build-using-namespace)
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 3) {
    fmt::print(stderr,
               "usage: drafts_bench MODEL BACKEND DRAFTER [TOKENS [ROUNDS [ACCEPTANCES "
               "[KEY=VALUE...]]]]\n");
    return 2;
  }
  rullama::EngineOptions options = OptionsOf(words, 6);
  options.settings.push_back({"drafts.model", words[2]});
  MeasureSteps(options);
  for (const double acceptance : NumbersOf(words.size() > 5 ? words[5] : "0,0.5,0.75,0.9")) {
    MeasureGain(options, acceptance, NumberOr(words, 3, 128), NumberOr(words, 4, 5));
  }
}
