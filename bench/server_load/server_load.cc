// Load for a server on this machine, which it must not limit itself: clients that take streamed
// answers, or requests that arrive at random.
//
//   server_load URL [--clients 1 4 16 | --rate 2 8] [--requests 6] [--tokens 64] [--mixed]
//               [--model base:one base:two] ...
//
// Prints one JSON object: for each number of clients or rate the tokens per second of all together,
// the time to the first text (ttft), the gaps between texts (itl) and the whole request, as p50,
// p90, p99 and max in milliseconds. Exit status 1 if a request failed, 2 for wrong arguments.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/server_load/load_client.h"
#include "bench/server_load/load_plan.h"
#include "bench/server_load/summary.h"

namespace rullama::bench {
namespace {

// Seeds between two runs, and between two clients of one: no prompt occurs twice.
constexpr uint64_t kSeedsOfRun = 1'000'000, kSeedsOfClient = 10'000;

struct Options {
  std::string url, api_key = "sk-local";
  std::vector<std::string> models;
  std::vector<size_t> clients = {1, 4, 16};
  std::vector<double> rates;
  size_t requests = 6;
  Lengths lengths;
  uint64_t seed = 0;
  double seconds = 120;
};

void AddOptions(CLI::App& app, Options& options) {
  app.add_option("url", options.url, "http://HOST:PORT of a server on this machine")->required();
  auto* clients = app.add_option("--clients", options.clients,
                                 "how many take answers at the same time, one run for each")
                      ->check(CLI::Range(1, 4096))
                      ->capture_default_str();
  app.add_option(
         "--rate", options.rates,
         "requests per second that arrive at random, one run for each; none waits for another")
      ->check(CLI::PositiveNumber)
      ->excludes(clients);
  app.add_option("--requests", options.requests, "of each client; with --rate of each run")
      ->check(CLI::Range(1, 9999))
      ->capture_default_str();
  app.add_option("--tokens", options.lengths.tokens, "of each answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--prompt-words", options.lengths.prompt_words, "of each prompt")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--shared-words", options.lengths.shared_words, "that all prompts begin with");
  app.add_flag("--mixed", options.lengths.mixed,
               fmt::format("lengths as people's: random, on average {} words and {} tokens unless "
                           "--prompt-words and --tokens say otherwise",
                           kMeanPrompt, kMeanAnswer));
  app.add_option(
      "--model", options.models,
      "default: the first that the server lists; of several the clients, or the requests that "
      "arrive at random, ask for one each, in turn");
  app.add_option("--api-key", options.api_key)->capture_default_str();
  app.add_option("--seed", options.seed, "prompts differ with it, so that no cache knows them");
  app.add_option("--seconds", options.seconds, "no request of a run begins after that")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
}

using Plans = std::vector<std::vector<PlannedRequest>>;

// The model that client `i` asks for; empty: the target's.
std::string ModelOf(const Options& options, size_t i) {
  return options.models.empty() ? std::string() : options.models[i % options.models.size()];
}

Plans PlansOfClients(const Options& options, size_t clients, uint64_t seed) {
  Plans plans;
  for (size_t i = 0; i < clients; ++i) {
    plans.push_back(ClosedLoop(options.lengths, options.requests, seed + i * kSeedsOfClient));
    for (PlannedRequest& request : plans.back()) request.model = ModelOf(options, i);
  }
  return plans;
}

// Each request has a client of its own.
Plans PlansOfRate(const Options& options, double rate, uint64_t seed) {
  Plans plans;
  for (PlannedRequest& request : OpenLoop(options.lengths, options.requests, rate, seed)) {
    request.model = ModelOf(options, plans.size());
    plans.push_back({std::move(request)});
  }
  return plans;
}

int Run(const Options& options) {
  Target target = TargetOf(options.url);
  target.api_key = options.api_key;
  target.model = options.models.empty() ? FirstModel(target) : options.models.front();
  uint64_t seed = options.seed;
  const std::chrono::duration<double> limit(options.seconds);
  RunClients(target, {ClosedLoop(options.lengths, 1, seed)}, limit);  // warms the server up

  bool failed = false;
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  const auto run = [&](const char* name, const nlohmann::ordered_json& value, const Plans& plans) {
    const LoadResult result = RunClients(target, plans, limit);
    nlohmann::ordered_json row{{name, value}};
    row.update(Summary(result.samples, result.seconds));
    failed = failed || row["failed"] != 0;
    results.push_back(std::move(row));
  };
  for (const double rate : options.rates) {
    run("rate", rate, PlansOfRate(options, rate, seed += kSeedsOfRun));
  }
  if (options.rates.empty()) {
    for (const size_t clients : options.clients) {
      run("clients", clients, PlansOfClients(options, clients, seed += kSeedsOfRun));
    }
  }
  const Lengths& lengths = options.lengths;
  const auto models = options.models.empty() ? std::vector{target.model} : options.models;
  const nlohmann::ordered_json out{{"models", models},
                                   {"tokens", lengths.tokens},
                                   {"prompt_words", lengths.prompt_words},
                                   {"shared_words", lengths.shared_words},
                                   {"mixed", lengths.mixed},
                                   {"results", std::move(results)}};
  fmt::print("{}\n", out.dump(1));
  return failed ? 1 : 0;
}

}  // namespace

int Main(int argc, char** argv) {
  constexpr int kUsage = 2;
  CLI::App app("Load for a server on this machine; prints tokens per second and times as JSON");
  Options options;
  AddOptions(app, options);
  try {
    app.parse(argc, argv);
    if (options.lengths.mixed) {
      if (app.count("--prompt-words") == 0) options.lengths.prompt_words = kMeanPrompt;
      if (app.count("--tokens") == 0) options.lengths.tokens = kMeanAnswer;
    }
    return Run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "server_load: {}\n", error.what());
    return 1;
  }
}

}  // namespace rullama::bench

int main(int argc, char** argv) { return rullama::bench::Main(argc, argv); }
