// rullama bench: speed of prompt evaluation and of generation, beside what the step has to read and
// compute at least.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "cli/answer.h"
#include "cli/command.h"
#include "cli/engine.h"
#include "cli/options.h"
#include "cli/signals.h"
#include "cli/traffic.h"
#include "core/runtime/generator.h"

namespace rullama::cli {
namespace {

constexpr int64_t kMaxTokens = 16777216;
constexpr int64_t kMaxRepetitions = 10000;

struct BenchFlags {
  ConfigFlags config;
  std::string prompts = "512";
  std::string generations = "128";
  std::string depths = "0";
  std::string repetitions = "5";
  bool json = false;
};

struct Test {
  bool prompt = true;  // pp: all tokens at once; tg: one after another
  int64_t tokens = 0;
  int64_t depth = 0;  // tokens in the cache before

  [[nodiscard]] std::string name() const {
    return fmt::format("{}{}{}", prompt ? "pp" : "tg", tokens,
                       depth > 0 ? fmt::format(" @ d{}", depth) : "");
  }
};

struct Measurement {
  Test test;
  std::vector<double> seconds;
  Traffic traffic;  // of one repetition

  // Tokens per second of each repetition, ascending.
  [[nodiscard]] std::vector<double> Rates() const {
    std::vector<double> rates;
    for (const double s : seconds) rates.push_back(static_cast<double>(test.tokens) / s);
    std::ranges::sort(rates);
    return rates;
  }
};

double Mean(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

double StandardDeviation(const std::vector<double>& x) {
  if (x.size() < 2) return 0;
  const double mean = Mean(x);
  double sum = 0;
  for (const double value : x) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(x.size() - 1));
}

double Median(const std::vector<double>& sorted) {
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

Result<std::vector<Test>> MakeTests(const BenchFlags& flags) {
  RL_ASSIGN_OR_RETURN(const auto prompts, ParseIdList(flags.prompts, "-p"));
  RL_ASSIGN_OR_RETURN(const auto generations, ParseIdList(flags.generations, "-n"));
  RL_ASSIGN_OR_RETURN(const auto depths, ParseIdList(flags.depths, "-d"));
  std::vector<Test> tests;
  for (const int64_t depth : depths) {
    for (const int64_t tokens : prompts) {
      if (tokens > 0) tests.push_back({.prompt = true, .tokens = tokens, .depth = depth});
    }
    for (const int64_t tokens : generations) {
      if (tokens > 0) tests.push_back({.prompt = false, .tokens = tokens, .depth = depth});
    }
  }
  for (const Test& test : tests) {
    if (test.tokens + test.depth <= kMaxTokens) continue;
    return MakeError(ErrorKind::kUsage, "input.number", "test {} needs more than {} tokens",
                     test.name(), kMaxTokens);
  }
  if (tests.empty()) {
    return MakeError(ErrorKind::kUsage, "input.number", "-p, -n and -d leave nothing to measure");
  }
  return tests;
}

class Bench {
 public:
  explicit Bench(Engine& engine) : engine_(engine) {}

  Status Prepare() {
    const auto build = [this](DemandMode demand) {
      const Graph& graph = engine_.session().graph();
      PipelineOptions options;
      options.demand = demand;
      options.max_t = graph.max_t;
      options.max_r = graph.max_r;
      options.policy = engine_.devices().policy;
      for (const auto& device : engine_.devices().devices) {
        options.alignments.push_back(device->description().alignment);
      }
      return BuildProgram(graph, QueryOf(engine_.devices()), options);
    };
    RL_ASSIGN_OR_RETURN(asked_, build(DemandMode::kAsAsked));
    RL_ASSIGN_OR_RETURN(state_only_, build(DemandMode::kStateOnly));
    return OkStatus();
  }

  // The first run of each test warms up and is not counted.
  Result<Measurement> Measure(const Test& test, int64_t repetitions) {
    Measurement measurement{test, {}, TrafficOf(test)};
    for (int64_t i = 0; i <= repetitions; ++i) {
      RL_ASSIGN_OR_RETURN(const double seconds, RunOnce(test));
      if (i > 0) measurement.seconds.push_back(seconds);
    }
    return measurement;
  }

 private:
  Result<double> RunOnce(const Test& test) {
    GeneratorOptions options;
    options.capacity = engine_.capacity();
    options.prefill_chunk = engine_.max_rows();
    const auto cancelled = CancelFlag();
    options.cancelled = cancelled.get();
    engine_.session().ForgetSlot(0);
    Generator generator(engine_.session(), options);
    const std::vector<int32_t> tokens = Tokens(test.depth + test.tokens);
    const auto depth = std::span(tokens).first(static_cast<size_t>(test.depth));
    const auto rest = std::span(tokens).subspan(static_cast<size_t>(test.depth));
    if (!depth.empty()) RL_RETURN_IF_ERROR(generator.Feed(depth));
    const auto start = std::chrono::steady_clock::now();
    if (test.prompt) {
      RL_RETURN_IF_ERROR(generator.Feed(rest));
    } else {
      for (const int32_t& token : rest) RL_RETURN_IF_ERROR(generator.Feed(std::span(&token, 1)));
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // Any tokens, the same in each run: a varied text costs what a sensible one does.
  [[nodiscard]] std::vector<int32_t> Tokens(int64_t count) const {
    const auto vocabulary = static_cast<uint64_t>(engine_.model().gemma.vocabulary);
    constexpr uint64_t kStride = 2654435761;  // odd and large: visits the vocabulary evenly
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>((i + 1) * kStride % vocabulary);
    }
    return tokens;
  }

  [[nodiscard]] Traffic TrafficOf(const Test& test) const {
    Traffic sum;
    const int64_t step = test.prompt ? engine_.max_rows() : 1;
    for (int64_t done = 0; done < test.tokens; done += step) {
      const int64_t rows = std::min(step, test.tokens - done);
      const bool wanted = !test.prompt || done + rows == test.tokens;
      sum +=
          TrafficOfStep(wanted ? asked_ : state_only_, {rows, wanted ? 1 : 0}, test.depth + done);
    }
    return sum;
  }

  Engine& engine_;
  Program asked_;
  Program state_only_;
};

nlohmann::json AsJson(const Measurement& m, const Engine& engine) {
  const std::vector<double> rates = m.Rates();
  const double seconds = static_cast<double>(m.test.tokens) / Median(rates);
  const auto tokens = static_cast<double>(m.test.tokens);
  const auto bytes = static_cast<double>(m.traffic.weight_bytes + m.traffic.cache_bytes);
  return {{"test", m.test.name()},
          {"kind", m.test.prompt ? "pp" : "tg"},
          {"tokens", m.test.tokens},
          {"depth", m.test.depth},
          {"repetitions", rates.size()},
          {"mean_per_s", Mean(rates)},
          {"stddev_per_s", StandardDeviation(rates)},
          {"median_per_s", Median(rates)},
          {"min_per_s", rates.front()},
          {"max_per_s", rates.back()},
          {"bytes_per_token", bytes / tokens},
          {"flops_per_token", m.traffic.flops / tokens},
          {"gb_per_s", bytes / seconds / 1e9},
          {"gflop_per_s", m.traffic.flops / seconds / 1e9},
          {"model", engine.model().file.name},
          {"backend", engine.devices().backend},
          {"device", engine.devices().main().description().name}};
}

std::string TextOf(const nlohmann::json& m) {
  return fmt::format(
      "{:<16} {:>10.2f} ± {:>7.2f} t/s, median {:>10.2f} | {:>9.3f} MB and {:>9.3f} MFLOP per "
      "token | {:>7.2f} GB/s, {:>8.2f} GFLOP/s\n",
      m["test"].get<std::string>(), m["mean_per_s"].get<double>(), m["stddev_per_s"].get<double>(),
      m["median_per_s"].get<double>(), m["bytes_per_token"].get<double>() / 1e6,
      m["flops_per_token"].get<double>() / 1e6, m["gb_per_s"].get<double>(),
      m["gflop_per_s"].get<double>());
}

Result<int> RunBench(const BenchFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const auto tests, MakeTests(flags));
  RL_ASSIGN_OR_RETURN(const int64_t repetitions,
                      ParseInteger(flags.repetitions, "-r", 1, kMaxRepetitions));
  int64_t needed = 1;
  for (const Test& test : tests) needed = std::max(needed, test.tokens + test.depth);
  ConfigFlags config = flags.config;
  config.settings.push_back({"sampler.greedy", "true", "bench"});
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(config));
  if (loaded.config.origin("context.capacity") != Origin::kFlag) {
    config.settings.push_back({"context.capacity", fmt::format("{}", needed), "bench"});
  }
  RL_ASSIGN_OR_RETURN(const auto engine, Engine::Open(config, {}, console));
  if (config.verbose) engine->Describe(console);
  Bench bench(*engine);
  RL_RETURN_IF_ERROR(bench.Prepare());
  for (const Test& test : tests) {
    RL_ASSIGN_OR_RETURN(const Measurement measurement, bench.Measure(test, repetitions));
    const nlohmann::json record = AsJson(measurement, *engine);
    RL_RETURN_IF_ERROR(console.Write(flags.json ? JsonLine(record) : TextOf(record)));
  }
  return 0;
}

}  // namespace

void AddBenchCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand("bench", "Measure prompt evaluation and generation");
  AddModelOptions(*command, flags->config);
  command->add_option("-p,--n-prompt", flags->prompts, "Prompt lengths, separated by commas")
      ->option_text("N,N");
  command->add_option("-n,--n-gen", flags->generations, "Tokens to generate")->option_text("N,N");
  command->add_option("-d,--n-depth", flags->depths, "Tokens in the cache before")
      ->option_text("N,N");
  command->add_option("-r,--repetitions", flags->repetitions, "Runs of each test, after a warm-up")
      ->option_text("N");
  command->add_flag("--json", flags->json, "One JSON object per test and line");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return RunBench(*flags, context.console); };
  });
}

}  // namespace rullama::cli
