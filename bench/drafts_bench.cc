// Measures drafts by the drafter of a model: what their steps cost, and what they gain.
//
//   drafts_bench MODEL BACKEND DRAFTER [TOKENS [ROUNDS [ACCEPTANCES [KEY=VALUE...]]]]
//
// First the medians of steps that check 1, 2, 3, 4, 6, 8 and 16 rows of one sequence, and of drafts
// of 1, 2, 3, 4, 6 and 8 tokens. Then, in ROUNDS turns, prompts of 512 tokens and greedy answers of
// TOKENS tokens by an engine without a drafter, and by one whose drafts have tokens that count as
// right with each of ACCEPTANCES (0,0.5,0.75,0.9); and how much faster the medians of the latter
// are. TOKENS of 0 leaves the answers out.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
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
#include "engine/scheduling/warm_up.h"

namespace rullama::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostRows = 16;
constexpr int kStepRounds = 41;
constexpr int64_t kStepPrompt = 64;  // tokens before the steps and the answers
constexpr int64_t kLongPrompt = 512;

std::vector<int32_t> Prompt(int64_t tokens) {
  std::vector<int32_t> ids = {2};
  while (std::ssize(ids) < tokens) ids.push_back(500 + 7 * static_cast<int32_t>(ids.size()));
  return ids;
}

// The median time in milliseconds, after a run that compiles plans and what drivers compile then.
double Milliseconds(Session& session, const std::function<void()>& work) {
  work();
  Must(WaitForPending(session, nullptr));
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
  std::vector<int32_t> tokens = Prompt(kStepPrompt);
  RowRequest row{.slot = 0, .sampling = {.temperature = 0}};
  row.token = Must(Must(batch.Read(0, tokens, std::span(&row, 1))).front().token);
  tokens.push_back(row.token);
  const int32_t past = session->session().past(0);
  double first = 0;
  for (const int64_t count :
       {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, int64_t{6}, int64_t{8}, kMostRows}) {
    const std::vector<RowRequest> rows(static_cast<size_t>(count), row);
    const double time = Milliseconds(session->session(), [&] {
      Must(batch.Decode(rows));
      Must(session->session().SetPast(0, past));
    });
    if (count == 1) first = time;
    fmt::print("step of {} rows: {:.3f} ms, {:.3f} of one row\n", count, time, time / first);
  }
  AssistantDrafter drafter(session->session(), *session->graphs().drafts, {});
  for (const int64_t count : {1, 2, 3, 4, 6, 8}) {
    DraftRequest request{.slot = 0, .tokens = tokens, .most = count};
    const double time = Milliseconds(session->session(), [&] {
      request.draft.clear();
      Must(drafter.Draft(std::span(&request, 1)));
    });
    fmt::print("draft of {} tokens: {:.3f} ms, {:.3f} of a step\n", count, time, time / first);
  }
}

// Drafts with this acceptance; null: without a drafter.
std::shared_ptr<Engine> Open(EngineOptions options,
                             std::shared_ptr<const std::atomic<double>> acceptance) {
  StderrNotices notices;
  if (!acceptance) {
    std::erase_if(options.settings, [](const Setting& set) { return set.key == "drafts.model"; });
    options.settings.push_back({"drafts.mtp", "false"});
  }
  return Must(EngineAccess::Open(Load(options, notices),
                                 {.draft_acceptance = std::move(acceptance)}, notices));
}

Completion Answer(Engine& engine, int64_t prompt, int64_t tokens) {
  Request request{
      .ids = Prompt(prompt), .max_tokens = tokens, .reuse_prefix = false, .ignore_end = true};
  request.sampling.temperature = 0;
  return Must(Must(engine.Submit(request)).Wait());
}

double PromptRate(Engine& engine) {
  const Completion answer = Answer(engine, kLongPrompt, 1);
  return static_cast<double>(kLongPrompt) / answer.prompt_seconds;
}

// Answers of one kind.
struct Answers {
  std::vector<double> rates;  // tokens per second after the first one
  DraftCounts drafts;
  int64_t steps = 0;

  void Add(const Completion& answer) {
    const auto after_first = static_cast<double>(std::ssize(answer.ids) - 1);
    rates.push_back(after_first / answer.generate_seconds);
    drafts.drafted += answer.drafts.drafted;
    drafts.accepted += answer.drafts.accepted;
    steps += std::ssize(answer.ids) - answer.drafts.accepted;
  }
  [[nodiscard]] double PerStep(int64_t count) const {
    return static_cast<double>(count) / static_cast<double>(steps);
  }
};

void MeasureGain(const EngineOptions& options, std::span<const double> acceptances, int64_t tokens,
                 int64_t rounds) {
  const auto acceptance = std::make_shared<std::atomic<double>>();
  const auto plain = Open(options, nullptr);
  const auto drafting = Open(options, acceptance);
  for (const auto& engine : {plain, drafting}) {  // compiles plans
    PromptRate(*engine);
    *acceptance = 0.75;
    Answer(*engine, kStepPrompt, tokens);
  }
  std::vector<double> plain_prompts;
  std::vector<double> prompts;
  Answers without;
  std::vector<Answers> with(acceptances.size());
  for (int64_t round = 0; round < rounds; ++round) {
    plain_prompts.push_back(PromptRate(*plain));
    prompts.push_back(PromptRate(*drafting));
    without.Add(Answer(*plain, kStepPrompt, tokens));
    for (size_t i = 0; i < acceptances.size(); ++i) {
      *acceptance = acceptances[i];
      with[i].Add(Answer(*drafting, kStepPrompt, tokens));
    }
  }
  fmt::print("prompt of {} tokens: {:.1f} without, {:.1f} tokens/s with a drafter\n", kLongPrompt,
             MedianOf(plain_prompts), MedianOf(prompts));
  const double plain_rate = MedianOf(without.rates);
  for (size_t i = 0; i < acceptances.size(); ++i) {
    const Answers& found = with[i];
    const double rate = MedianOf(found.rates);
    fmt::print(
        "acceptance {}: {:.2f} without, {:.2f} tokens/s with drafts, {:.3f} times; {:.2f} drafted "
        "and {:.2f} accepted a step\n",
        acceptances[i], plain_rate, rate, rate / plain_rate, found.PerStep(found.drafts.drafted),
        found.PerStep(found.drafts.accepted));
  }
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
  const int64_t tokens = NumberOr(words, 3, 128);
  if (tokens == 0) return 0;
  const std::vector<double> acceptances = NumbersOf(words.size() > 5 ? words[5] : "0,0.5,0.75,0.9");
  MeasureGain(options, acceptances, tokens, NumberOr(words, 4, 5));
}
