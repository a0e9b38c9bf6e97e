// rullama bench: speed of prompt evaluation, of generation and of encoding pictures, next to the
// least that the step has to read and compute.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench/bench_measurement.h"
#include "cli/bench/bench_output.h"
#include "cli/bench/encode_bench.h"
#include "cli/commands/command.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "cli/reports/bench_plot.h"
#include "cli/reports/report_file.h"
#include "cli/reports/trace.h"
#include "cli/terminal/signals.h"
#include "core/base/clock.h"
#include "core/ir/op_cost.h"
#include "core/runtime/device_program.h"
#include "core/runtime/sequence_feeder.h"
#include "engine/canvas_generator.h"
#include "engine/session_canvas.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

constexpr int64_t kMaxBenchTokens = 16777216;
constexpr int64_t kMaxRepetitions = 10000;

struct BenchFlags {
  ConfigFlags config;
  std::string prompts = "512";
  std::string generations = "128";
  std::string depths = "0";
  std::string image_tokens = "0";
  std::string repetitions = "5";
  TraceFlags trace;
  std::optional<std::string> plot;
  bool all_rows = false;
  bool tune = false;
  bool json = false;
};

// The cost of a step at these extents, with `past` rows in the cache of its only slot.
OpCost CostOfStep(const Program& program, const Extents& extents, int64_t past) {
  std::vector<int32_t> pos(static_cast<size_t>(extents.t));
  std::iota(pos.begin(), pos.end(), static_cast<int32_t>(past));
  const std::vector<int32_t> slot(pos.size());
  OpCost sum;
  for (const PlannedSegment& segment : program.segments) {
    for (const Op& op : segment.graph.ops) {
      sum += CostOf(segment.graph, op, {extents, pos, slot});
    }
  }
  return sum;
}

Result<std::vector<BenchTest>> MakeTests(const BenchFlags& flags) {
  RL_ASSIGN_OR_RETURN(const auto prompts, ParseIdList(flags.prompts, "-p"));
  RL_ASSIGN_OR_RETURN(const auto generations, ParseIdList(flags.generations, "-n"));
  RL_ASSIGN_OR_RETURN(const auto depths, ParseIdList(flags.depths, "-d"));
  RL_ASSIGN_OR_RETURN(const auto pictures, ParseIdList(flags.image_tokens, "--image-tokens"));
  std::vector<BenchTest> tests;
  const BenchKind prompt = flags.all_rows ? BenchKind::kAllRows : BenchKind::kPrompt;
  for (const int64_t depth : depths) {
    for (const int64_t tokens : prompts) {
      if (tokens > 0) tests.push_back({prompt, tokens, depth});
    }
    for (const int64_t tokens : generations) {
      if (tokens > 0 && !flags.all_rows) tests.push_back({BenchKind::kGenerate, tokens, depth});
    }
  }
  for (const int64_t tokens : pictures) {
    if (tokens > 0) tests.push_back({BenchKind::kEncode, tokens, 0});
  }
  for (const BenchTest& test : tests) {
    if (test.tokens + test.depth <= kMaxBenchTokens) continue;
    return MakeError(ErrorKind::kUsage, "input.number", "test {} needs more than {} tokens",
                     test.name(), kMaxBenchTokens);
  }
  if (tests.empty()) {
    return MakeError(ErrorKind::kUsage, "input.number",
                     "-p, -n, -d and --image-tokens leave nothing to measure");
  }
  return tests;
}

// A model that denoises generates no single tokens: whatever their number, one step of a canvas is
// measured for each depth.
std::vector<BenchTest> WithSteps(const std::vector<BenchTest>& tests, int64_t canvas_length) {
  std::vector<BenchTest> changed;
  for (BenchTest test : tests) {
    if (test.kind == BenchKind::kGenerate) test = {BenchKind::kDenoise, canvas_length, test.depth};
    const auto same = [&test](const BenchTest& other) { return other.name() == test.name(); };
    if (std::ranges::none_of(changed, same)) changed.push_back(test);
  }
  return changed;
}

class Bench {
 public:
  // all_rows: there are only tests of that kind.
  Bench(ModelSession& engine, bool all_rows) : engine_(engine), all_rows_(all_rows) {}

  Status Prepare() {
    const ProgramGraphs& graphs = engine_.graphs();
    const auto build = [this](DemandMode demand, GraphHandle of) {
      const Graph& graph = engine_.session().graph(of);
      const BackendDevices& devices = engine_.devices();
      return BuildDeviceProgram(graph, devices.Borrow(), devices.policy,
                                {.max_t = graph.max_t, .max_r = graph.max_r, .demand = demand});
    };
    if (all_rows_) {
      RL_ASSIGN_OR_RETURN(asked_, build(DemandMode::kAllRows, graphs.read));
    } else if (denoises()) {
      RL_ASSIGN_OR_RETURN(denoise_, build(DemandMode::kAllRows, graphs.denoise.value()));
    } else {
      RL_ASSIGN_OR_RETURN(asked_, build(DemandMode::kPerOutput, graphs.read));
    }
    RL_ASSIGN_OR_RETURN(state_only_, build(DemandMode::kStateOnly, graphs.read));
    return OkStatus();
  }

  // The first run of each test warms up and is not counted.
  Result<BenchMeasurement> Measure(BenchTest test, int64_t repetitions) {
    if (test.kind == BenchKind::kEncode) {
      RL_ASSIGN_OR_RETURN(picture_, MakeBenchPicture(engine_.model(), test.tokens));
      test.tokens = picture_.tokens;
    }
    BenchMeasurement measurement{test, {}, CostOfTest(test)};
    for (int64_t i = 0; i <= repetitions; ++i) {
      RL_ASSIGN_OR_RETURN(const double seconds, RunOnce(test));
      if (i > 0) measurement.seconds.push_back(seconds);
      if (i == 0 || test.kind != BenchKind::kEncode) continue;
      measurement.prepare_seconds.push_back(SecondsToPrepare(engine_.model(), picture_));
    }
    return measurement;
  }

 private:
  [[nodiscard]] bool denoises() const { return engine_.model().facts().denoises(); }

  Result<double> RunOnce(const BenchTest& test) {
    if (test.kind == BenchKind::kEncode) return RunEncodeTest();
    engine_.session().ForgetSlot(0);
    const std::vector<int32_t> tokens = Tokens(test.depth + test.tokens);
    const auto depth = std::span(tokens).first(static_cast<size_t>(test.depth));
    const auto rest = std::span(tokens).subspan(static_cast<size_t>(test.depth));
    if (all_rows_) return RunAllRowsTest(depth, rest);
    return denoises() ? RunCanvasTest(test, depth, rest) : RunTokenTest(test, depth, rest);
  }

  Result<double> RunAllRowsTest(std::span<const int32_t> depth, std::span<const int32_t> rest) {
    const auto cancelled = CancelFlag();
    SequenceFeeder feeder(engine_.session(), {.cancelled = cancelled.get()});
    RL_RETURN_IF_ERROR(feeder.Feed(depth, DemandMode::kStateOnly, DemandMode::kStateOnly, {}));
    const auto start = Clock::now();
    RL_RETURN_IF_ERROR(feeder.Feed(rest, DemandMode::kAllRows, DemandMode::kAllRows, {}));
    return SecondsSince(start);
  }

  Result<double> RunTokenTest(const BenchTest& test, std::span<const int32_t> depth,
                              std::span<const int32_t> rest) {
    const auto cancelled = CancelFlag();
    SequenceFeeder feeder(engine_.session(), {.cancelled = cancelled.get()});
    if (!depth.empty()) RL_RETURN_IF_ERROR(feeder.NextToken(depth));
    const auto start = Clock::now();
    if (test.kind == BenchKind::kPrompt) {
      RL_RETURN_IF_ERROR(feeder.NextToken(rest));
    } else {
      for (const int32_t& token : rest) RL_RETURN_IF_ERROR(feeder.NextToken(std::span(&token, 1)));
    }
    return SecondsSince(start);
  }

  Result<double> RunEncodeTest() {
    ChangePicture(picture_);
    const auto start = Clock::now();
    RL_RETURN_IF_ERROR(engine_.media().Encode(picture_));
    return SecondsSince(start);
  }

  Result<double> RunCanvasTest(const BenchTest& test, std::span<const int32_t> depth,
                               std::span<const int32_t> rest) {
    CanvasGeneratorOptions options = CanvasOptionsOf(engine_);
    const auto cancelled = CancelFlag();
    options.cancelled = cancelled.get();
    PhiloxCanvasRandom unused(0);
    CanvasGenerator generator(engine_.session(), unused, options);
    RL_RETURN_IF_ERROR(generator.Feed(depth));
    if (test.kind == BenchKind::kPrompt) {
      const auto start = Clock::now();
      RL_RETURN_IF_ERROR(generator.Feed(rest));
      return SecondsSince(start);
    }
    RL_ASSIGN_OR_RETURN(auto canvas, SessionCanvas::Begin(engine_.session(), options.graphs.denoise,
                                                          engine_.model().facts().vocabulary,
                                                          options.canvas_length, 0));
    const std::vector<float> uniforms(rest.size(), 0.5F);
    const CanvasRequest request{.canvas = rest,
                                .self_conditioned = true,
                                .inverse_temperature = 1.25F,
                                .uniforms = uniforms,
                                .noise = rest};
    CanvasReply reply;
    const auto start = Clock::now();
    RL_RETURN_IF_ERROR(canvas.Denoise(request, reply));
    return SecondsSince(start);
  }

  // Any tokens, the same in each run: a varied text costs what a sensible one does.
  [[nodiscard]] std::vector<int32_t> Tokens(int64_t count) const {
    const auto vocabulary = static_cast<uint64_t>(engine_.model().facts().vocabulary);
    constexpr uint64_t kStride = 2654435761;  // odd and large: visits the vocabulary evenly
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>((i + 1) * kStride % vocabulary);
    }
    return tokens;
  }

  [[nodiscard]] OpCost CostOfTest(const BenchTest& test) const {
    if (test.kind == BenchKind::kEncode) return CostOfPicture(engine_.model(), test.tokens);
    if (test.kind == BenchKind::kDenoise) return CostOfStep(denoise_, {test.tokens, 0}, test.depth);
    OpCost sum;
    const bool prompt = test.kind != BenchKind::kGenerate;
    const int64_t step = prompt ? engine_.limits().max_t : 1;
    for (int64_t done = 0; done < test.tokens; done += step) {
      const int64_t rows = std::min(step, test.tokens - done);
      const bool wanted = all_rows_ || (!denoises() && (!prompt || done + rows == test.tokens));
      sum += CostOfStep(wanted ? asked_ : state_only_, {rows, wanted ? 1 : 0}, test.depth + done);
    }
    return sum;
  }

  ModelSession& engine_;
  bool all_rows_;
  Program asked_;
  Program denoise_;
  Program state_only_;
  DecodedMedium picture_;  // of the test kEncode that runs
};

// The canvas length of the model to be measured, or 0 if it does not denoise. Reading its header
// twice costs little.
Result<int64_t> CanvasLengthOf(const LoadedConfig& loaded) {
  RL_ASSIGN_OR_RETURN(const ModelFile file, OpenModelFile(loaded.config.values().model.path));
  RL_ASSIGN_OR_RETURN(const auto model, OpenModel(*file.file));
  return model->facts().canvas.length;
}

// The option --threads may be a list: the flags with each of its numbers, in their order.
Result<std::vector<ConfigFlags>> FlagsByThreads(const ConfigFlags& flags) {
  constexpr std::string_view kThreads = "backend.options.threads";
  const auto given = std::ranges::find(flags.settings, kThreads, &ConfigFlags::Setting::path);
  if (given == flags.settings.end() || given->text.find(',') == std::string::npos) {
    return std::vector<ConfigFlags>{flags};
  }
  RL_ASSIGN_OR_RETURN(const auto counts, ParseIdList(given->text, given->flag));
  std::vector<ConfigFlags> all;
  for (const int32_t count : counts) {
    all.push_back(flags);
    ConfigFlags::Setting& one =
        *std::ranges::find(all.back().settings, kThreads, &ConfigFlags::Setting::path);
    one.text = fmt::format("{}", count);
  }
  return all;
}

// The tests for a model and the tokens that its context needs for them.
struct BenchPlan {
  std::vector<BenchTest> tests;
  int64_t needed = 1;
};

Result<BenchPlan> PlanOf(const BenchFlags& flags, const LoadedConfig& loaded) {
  BenchPlan plan;
  RL_ASSIGN_OR_RETURN(plan.tests, MakeTests(flags));
  RL_ASSIGN_OR_RETURN(const int64_t canvas, CanvasLengthOf(loaded));
  if (canvas > 0 && flags.all_rows) {
    return MakeError(ErrorKind::kUsage, "model.canvas",
                     "--all-rows asks for the next token of every row, and this model denoises "
                     "canvases; leave the flag out");
  }
  if (canvas > 0) plan.tests = WithSteps(plan.tests, canvas);
  for (const BenchTest& test : plan.tests) {
    plan.needed = std::max(plan.needed, test.tokens + test.depth);
  }
  return plan;
}

// Loads the model and measures test by test.
Status MeasureModel(const BenchFlags& flags, ConfigFlags config, int64_t repetitions,
                    TraceFile* trace, BenchOutput& output, Console& console) {
  config.settings.push_back({"sampler.greedy", "true", "bench"});
  if (flags.tune) config.settings.push_back({"backend.options.tune", "on", "--tune"});
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(config));
  RL_ASSIGN_OR_RETURN(const BenchPlan plan, PlanOf(flags, loaded));
  if (loaded.config.origin("context.capacity") != Origin::kFlag) {
    config.settings.push_back({"context.capacity", fmt::format("{}", plan.needed), "bench"});
  }
  ModelSessionOptions options;
  options.observer = TraceOf(trace, loaded.config.values().model.path.value_or(""));
  if (flags.all_rows) options.outputs = GraphOutputs::kAllLogits;
  RL_ASSIGN_OR_RETURN(const auto engine, OpenModelSession(config, options, console));
  if (config.verbose) DescribeSession(*engine, console);
  Bench bench(*engine, flags.all_rows);
  RL_RETURN_IF_ERROR(bench.Prepare());
  const BenchSubject subject = SubjectOf(*engine);
  for (const BenchTest& test : plan.tests) {
    RL_ASSIGN_OR_RETURN(const BenchMeasurement measurement, bench.Measure(test, repetitions));
    RL_RETURN_IF_ERROR(output.Write(subject, measurement));
  }
  return OkStatus();
}

Result<int> RunBench(const BenchFlags& flags, TraceFile* trace, Console& console) {
  RL_RETURN_IF_ERROR(MakeTests(flags));
  RL_ASSIGN_OR_RETURN(const int64_t repetitions,
                      ParseInteger(flags.repetitions, "-r", 1, kMaxRepetitions));
  RL_ASSIGN_OR_RETURN(const auto configs, FlagsByThreads(flags.config));
  RL_ASSIGN_OR_RETURN(const auto plot, ReportFile::Create(flags.plot));
  BenchOutput output(flags.json, configs.size() > 1, console);
  for (const ConfigFlags& config : configs) {
    RL_RETURN_IF_ERROR(MeasureModel(flags, config, repetitions, trace, output, console));
  }
  RL_RETURN_IF_ERROR(output.Finish());
  if (plot) {
    RL_RETURN_IF_ERROR(
        plot->Write(drawing::SvgFile(BenchPlot(output.PlotTitle(), output.points()))));
  }
  return 0;
}

Result<int> RunBenchAndTrace(const BenchFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const auto trace, TraceFile::Create(flags.trace));
  return TraceFile::Finish(trace, RunBench(flags, trace.get(), console));
}

}  // namespace

void AddBenchCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<BenchFlags>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure prompt evaluation, generation and encoding");
  AddModelOptions(*command, flags->config);
  command->add_option("-p,--n-prompt", flags->prompts, "Prompt lengths, separated by commas")
      ->option_text("N,N");
  command->add_option("-n,--n-gen", flags->generations, "Tokens to generate")->option_text("N,N");
  command->add_option("-d,--n-depth", flags->depths, "Tokens in the cache before the test")
      ->option_text("N,N");
  command
      ->add_option("--image-tokens", flags->image_tokens,
                   "Pictures to encode, by their tokens: 70, 140, 280, 560 or 1120")
      ->option_text("N,N");
  command->add_option("-r,--repetitions", flags->repetitions, "Runs of each test, after a warm-up")
      ->option_text("N");
  command->add_flag("--all-rows", flags->all_rows,
                    "Prompts with the logits of every token, as drafts and perplexity ask");
  command->add_flag("--tune", flags->tune,
                    "First measure tiles of products on the GPU's matrix units, and keep their "
                    "times for later runs (option tune of the backend)");
  command->add_flag("--json", flags->json, "One JSON object per test and line");
  command
      ->add_option("--plot", flags->plot,
                   "Write a chart (SVG) of the speeds over the lengths and the depths")
      ->option_text("FILE");
  AddTraceOptions(*command, flags->trace);
  AddTowerOption(*command, flags->config);
  command->get_option("--threads")
      ->description("Threads of the cpu backend [default one per core], or several numbers")
      ->option_text("N,N");
  command->get_option("--ctx-size")
      ->description("Tokens that fit; 0: the model's context length [default as many as needed]");
  command->footer(R"(Examples:
  rullama bench -m model.gguf
  rullama bench -m model.gguf -p 512,2048 -n 64 -d 0,4096 --json
  rullama bench -m model.gguf -t 1,2,4
  rullama bench -m model.gguf --mmproj mmproj.gguf -p 0 -n 0 --image-tokens 280
  rullama bench -m model.gguf -p 128,512,2048 -d 0,4096,16384 --plot speed.svg)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return RunBenchAndTrace(*flags, context.console); };
  });
}

}  // namespace rullama::cli
