// Measures the overhead of Engine over the bare steps of its session: the same greedy answer of one
// request, step by step on a BatchSession, and through Engine::Submit and Generation::Next.
//
//   engine_bench MODEL BACKEND [TOKENS [ROUNDS [REQUESTS [KEY=VALUE...]]]]
//
// The rounds alternate between the two. Prints the rate of each round, the medians, and by how much
// the engine is slower. With more than one of REQUESTS it compares one request with that number at
// once instead, in an engine of as many slots, and prints by how much these are faster together.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_session.h"
#include "engine/api/engine.h"
#include "engine/model_session.h"
#include "engine/scheduling/batch_session.h"

namespace rullama::bench {
namespace {

using Clock = std::chrono::steady_clock;

const std::vector<int32_t> kPrompt = {2, 500, 600, 700};

// Tokens per second after the first of `tokens`.
using Round = double;

Round RunBare(ModelSession& session, int64_t tokens) {
  BatchSession batch(session.session(), session.graphs(), session.model().facts().vocabulary);
  session.session().ForgetSlot(0);
  RowRequest row{.slot = 0, .sampling = {.temperature = 0}};
  row.token = Must(Must(batch.Read(0, kPrompt, std::span(&row, 1))).front().token);
  const auto start = Clock::now();
  for (int64_t i = 1; i < tokens; ++i) {
    row.token = Must(Must(batch.Decode(std::span(&row, 1))).front().token);
  }
  return static_cast<double>(tokens - 1) /
         std::chrono::duration<double>(Clock::now() - start).count();
}

Round RunEngine(Engine& engine, int64_t tokens) {
  Request request{.ids = kPrompt, .max_tokens = tokens, .reuse_prefix = false};
  request.sampling.temperature = 0;
  Generation generation = Must(engine.Submit(request));
  const Completion completion = Must(generation.Wait());
  const auto drawn = std::ssize(completion.ids);
  if (drawn < tokens) {
    fmt::print(stderr, "the model ended after {} tokens, expected {}\n", drawn, tokens);
    std::exit(1);
  }
  return static_cast<double>(drawn - 1) / completion.generate_seconds;
}

// All tokens of `requests` answers, written at once, per second from the last first token on.
Round RunTogether(Engine& engine, int64_t tokens, int64_t requests) {
  std::vector<Generation> generations;
  generations.reserve(static_cast<size_t>(requests));
  for (int64_t i = 0; i < requests; ++i) {
    Request request{.ids = kPrompt, .max_tokens = tokens, .reuse_prefix = false};
    request.ids.push_back(static_cast<int32_t>(800 + i));
    request.sampling.temperature = 0;
    generations.push_back(Must(engine.Submit(request)));
  }
  double slowest = 0;
  int64_t drawn = 0;
  for (Generation& generation : generations) {
    const Completion completion = Must(generation.Wait());
    slowest = std::max(slowest, completion.generate_seconds);
    drawn += std::ssize(completion.ids) - 1;
  }
  return static_cast<double>(drawn) / slowest;
}

int Run(const EngineOptions& options, int64_t tokens, int64_t rounds) {
  const auto session = OpenSession(options, 1);
  const auto engine = Must(Engine::Open(options));
  RunBare(*session, tokens);  // compiles plans
  RunEngine(*engine, tokens);
  std::vector<Round> bare;
  std::vector<Round> through_engine;
  for (int64_t i = 0; i < rounds; ++i) {
    bare.push_back(RunBare(*session, tokens));
    through_engine.push_back(RunEngine(*engine, tokens));
    fmt::print("session {:.1f}, engine {:.1f} tokens/s\n", bare.back(), through_engine.back());
  }
  const double session_rate = MedianOf(bare);
  const double engine_rate = MedianOf(through_engine);
  fmt::print(
      "medians: session {:.1f}, engine {:.1f} tokens/s; overhead {:.2f} %, {:.1f} us a token\n",
      session_rate, engine_rate, (session_rate / engine_rate - 1) * 100,
      (1 / engine_rate - 1 / session_rate) * 1e6);
  return 0;
}

int RunRequests(const EngineOptions& options, int64_t tokens, int64_t rounds, int64_t requests) {
  const auto engine = Must(Engine::Open(options));
  RunTogether(*engine, tokens, 1);  // compiles plans
  RunTogether(*engine, tokens, requests);
  std::vector<Round> alone;
  std::vector<Round> together;
  for (int64_t i = 0; i < rounds; ++i) {
    alone.push_back(RunTogether(*engine, tokens, 1));
    together.push_back(RunTogether(*engine, tokens, requests));
    fmt::print("one {:.1f}, {} at once {:.1f} tokens/s\n", alone.back(), requests, together.back());
  }
  const double one = MedianOf(alone);
  const double all = MedianOf(together);
  fmt::print("medians: one {:.1f}, {} at once {:.1f} tokens/s; {:.2f} times\n", one, requests, all,
             all / one);
  return 0;
}

}  // namespace
}  // namespace rullama::bench

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) {
    fmt::print(stderr,
               "usage: engine_bench MODEL BACKEND [TOKENS [ROUNDS [REQUESTS [KEY=VALUE...]]]]\n");
    return 2;
  }
  rullama::EngineOptions options = rullama::bench::OptionsOf(words, 5);
  const auto number = [&words](size_t i, int64_t otherwise) {
    return rullama::bench::NumberOr(words, i, otherwise);
  };
  const int64_t requests = number(4, 1);
  if (requests > 1) {
    options.settings.push_back({"context.slots", std::to_string(requests)});
    return rullama::bench::RunRequests(options, number(2, 128), number(3, 7), requests);
  }
  return rullama::bench::Run(options, number(2, 128), number(3, 7));
}
