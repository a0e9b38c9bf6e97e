// rullama profile: where the time of reading a prompt and of generating goes, by op. Of a model
// that makes embeddings: the time of reading a text and of the layers after its mean.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/device_peaks.h"
#include "cli/bench/score.h"
#include "cli/commands/arguments.h"
#include "cli/commands/build_info.h"
#include "cli/commands/command.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "cli/reports/op_profile.h"
#include "cli/reports/profile_page.h"
#include "cli/reports/profile_report.h"
#include "cli/reports/report_file.h"
#include "cli/terminal/signals.h"
#include "core/ir/encoder_names.h"
#include "core/ir/media_names.h"
#include "core/runtime/sequence_feeder.h"

namespace rullama::cli {
namespace {

constexpr int64_t kMaxProfiledTokens = 1 << 20;
constexpr const char* kUsualGenerated = "32";
constexpr int64_t kMaxProfileRuns = 1000;
constexpr int64_t kMaxSlowest = 10000;
constexpr size_t kMaxProfileBytes = size_t{256} << 20;

struct ProfileFlags {
  ConfigFlags config;
  std::string prompt = "512";
  std::optional<std::string> generated;
  std::string repetitions = "5";
  std::string slowest = "20";
  std::optional<std::string> html;
  std::optional<std::string> against;
  bool no_peaks = false;
  bool json = false;
};

// The sizes of the runs and of the tables.
struct ProfileSizes {
  int64_t prompt = 0;
  int64_t generated = 0;
  int64_t repetitions = 0;
  int64_t slowest = 0;
};

Result<ProfileSizes> SizesOf(const ProfileFlags& flags) {
  ProfileSizes sizes;
  RL_ASSIGN_OR_RETURN(sizes.prompt, ParseInteger(flags.prompt, "-p", 1, kMaxProfiledTokens));
  RL_ASSIGN_OR_RETURN(sizes.generated, ParseInteger(flags.generated.value_or(kUsualGenerated), "-n",
                                                    1, kMaxProfiledTokens));
  RL_ASSIGN_OR_RETURN(sizes.repetitions, ParseInteger(flags.repetitions, "-r", 1, kMaxProfileRuns));
  RL_ASSIGN_OR_RETURN(sizes.slowest, ParseInteger(flags.slowest, "--slowest", 0, kMaxSlowest));
  return sizes;
}

// Reads a text with an encoder, and waits for its rows.
Status ReadText(ModelSession& engine, const std::vector<int32_t>& text) {
  Session& session = engine.session();
  StepRows step;
  step.SetConsecutive(text, /*past=*/0, /*slot_of_all=*/0, DemandMode::kAllRows);
  step.graph = engine.graphs().hidden->graph;
  const ModelFacts facts = engine.model().facts();
  std::vector<int32_t> last_seen = step.pos;
  for (int32_t& position : last_seen) position += static_cast<int32_t>(facts.encoder.radius);
  RL_RETURN_IF_ERROR(session.SetInput(media_names::kLastSeen, std::as_bytes(std::span(last_seen))));
  RL_RETURN_IF_ERROR(session.Run(step));
  std::vector<float> rows(text.size() * static_cast<size_t>(facts.width));
  return session.ReadOutput(encoder_names::kHidden, std::as_writable_bytes(std::span(rows)));
}

// Runs the layers after the mean of an encoder's rows once, for any mean: the work is the same for
// all. None, if the model has no such layers.
Status RunHead(ModelSession& engine) {
  if (!engine.graphs().head) return OkStatus();
  Session& session = engine.session();
  const ModelFacts facts = engine.model().facts();
  const std::vector<float> mean(static_cast<size_t>(facts.width), 1.0F);
  RL_RETURN_IF_ERROR(session.SetInput(encoder_names::kMean, std::as_bytes(std::span(mean))));
  StepRows step;
  // The graph reads no token, but a step says by them how many rows it has.
  step.SetConsecutive(std::vector<int32_t>(1), /*past=*/0, /*slot_of_all=*/0, DemandMode::kAllRows);
  step.graph = *engine.graphs().head;
  RL_RETURN_IF_ERROR(session.Run(step));
  std::vector<float> vector(static_cast<size_t>(facts.encoder.embedding));
  return session.ReadOutput(encoder_names::kEmbedding, std::as_writable_bytes(std::span(vector)));
}

Status RunPrompt(ModelSession& engine, int64_t tokens) {
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  const auto vocabulary = static_cast<int64_t>(engine.model().facts().vocabulary);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<int32_t>(static_cast<int64_t>(i + 1) % vocabulary);
  }
  if (engine.model().facts().encodes()) return ReadText(engine, prompt);
  engine.session().ForgetSlot(0);
  const auto cancelled = CancelFlag();
  RL_RETURN_IF_ERROR(
      SequenceFeeder(engine.session(), {.cancelled = cancelled.get()}).NextToken(prompt));
  return OkStatus();
}

// Runs what follows the prompt: the generation of tokens, or an encoder's layers after the mean.
Status RunRest(ModelSession& engine, int64_t tokens) {
  if (engine.model().facts().encodes()) return RunHead(engine);
  constexpr int32_t kAnyToken = 1;  // the work is the same for all
  const auto cancelled = CancelFlag();
  SequenceFeeder feeder(engine.session(), {.cancelled = cancelled.get()});
  for (int64_t i = 0; i < tokens; ++i) {
    RL_RETURN_IF_ERROR(feeder.NextToken(std::span(&kAnyToken, 1)));
  }
  return OkStatus();
}

// "gemma4:e2b on cpu, rullama 0.2.0".
std::string SubjectText(const ModelSession& engine) {
  const ModelFile& file = engine.model().file;
  return fmt::format("{} on {}, rullama {}",
                     file.ollama ? file.name : std::filesystem::path(file.name).filename().string(),
                     engine.devices().backend, BuildText());
}

// The peaks of the devices that share the layers: one for each backend, as ops are told apart.
Result<std::vector<DevicePeaks>> PeaksOfDevices(const BackendDevices& devices) {
  std::vector<DevicePeaks> all;
  for (size_t i = 0; i < devices.layer_devices; ++i) {
    Device& device = *devices.devices[i];
    if (PeaksOf(all, device.plugin().name()).known()) continue;
    RL_ASSIGN_OR_RETURN(DevicePeaks peaks, MeasurePeaks(device));
    all.push_back(std::move(peaks));
  }
  return all;
}

Result<std::vector<ProfileReport>> EarlierReports(const std::optional<std::string>& path) {
  if (!path) return std::vector<ProfileReport>();
  RL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(*path, kMaxProfileBytes));
  return ParseProfiles(text, *path);
}

// Runs both tests, as often as asked for. The first run of each compiles plans and is not counted.
Result<std::vector<ProfileReport>> Measure(ModelSession& engine, OpProfiler& profiler,
                                           const ProfileSizes& sizes, bool with_peaks) {
  std::vector<DevicePeaks> peaks;
  if (with_peaks) {
    RL_ASSIGN_OR_RETURN(peaks, PeaksOfDevices(engine.devices()));
  }
  RL_RETURN_IF_ERROR(RunPrompt(engine, sizes.prompt));
  RL_RETURN_IF_ERROR(RunRest(engine, 1));
  (void)profiler.Take();
  std::vector<StepProfile> prompts, rests;
  for (int64_t run = 0; run < sizes.repetitions; ++run) {
    RL_RETURN_IF_ERROR(RunPrompt(engine, sizes.prompt));
    prompts.push_back(profiler.Take());
    RL_RETURN_IF_ERROR(RunRest(engine, sizes.generated));
    rests.push_back(profiler.Take());
  }
  if (with_peaks) {
    RL_ASSIGN_OR_RETURN(const std::vector<DevicePeaks> later, PeaksOfDevices(engine.devices()));
    peaks = HigherPeaks(peaks, later);
  }
  const DeviceDescription& device = engine.devices().main().description();
  const auto report_of = [&](std::string test, const std::vector<StepProfile>& runs) {
    return ProfileReport{.subject = SubjectText(engine),
                         .test = std::move(test),
                         .profile = MedianOf(runs),
                         .peaks = peaks,
                         .device = fmt::format("{} ({})", device.name, device.driver),
                         .threads = ThreadsOf(engine)};
  };
  std::vector<ProfileReport> reports = {report_of(fmt::format("pp{}", sizes.prompt), prompts)};
  if (!engine.model().facts().encodes()) {
    reports.push_back(report_of(fmt::format("tg{}", sizes.generated), rests));
  } else if (engine.graphs().head) {
    reports.push_back(report_of("dense", rests));
  }
  for (const ProfileReport& report : reports) {
    if (!report.profile.ops.empty()) continue;
    return MakeError(ErrorKind::kBackend, "profile.no_times",
                     "no device tells when its ops run, which needs a plugin of ABI 1.5 with "
                     "plan_times; take another --backend, or see segments with bench --trace");
  }
  return reports;
}

Status WriteTest(const ProfiledTest& test, const ProfileSizes& sizes, bool as_json,
                 Console& console) {
  const ProfileReport& report = test.report;
  if (as_json) return console.Write(ProfileJson(report));
  return console.Write(fmt::format("{}: {:.3f} s in {} step{}\n{}{}\n", report.test,
                                   report.profile.seconds, report.profile.steps,
                                   report.profile.steps == 1 ? "" : "s",
                                   ProfileText(report, static_cast<size_t>(sizes.slowest)),
                                   test.before ? ComparisonText(report, *test.before) : ""));
}

// Error model.encoder if tokens are to be generated by a model that makes embeddings.
Status CheckGenerates(const ProfileFlags& flags, const LoadedModel& model) {
  if (!flags.generated || !model.facts().encodes()) return OkStatus();
  return MakeError(ErrorKind::kUsage, "model.encoder",
                   "this model makes embeddings and generates no tokens; leave -n out");
}

// Makes room for as many tokens as needed, if --ctx-size does not tell how many. Errors: config.*.
Status SetCapacity(const ProfileSizes& sizes, LoadedModel& model) {
  if (model.layers.origin("context.capacity") == Origin::kFlag) return OkStatus();
  const int64_t needed = sizes.prompt + (model.facts().encodes() ? 0 : sizes.generated);
  return model.layers.Set("context.capacity", fmt::format("{}", needed), Origin::kFlag, "profile");
}

Result<int> RunProfile(const ProfileFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const ProfileSizes sizes, SizesOf(flags));
  ConfigFlags config = flags.config;
  config.settings.push_back({"sampler.greedy", "true", "profile"});
  RL_ASSIGN_OR_RETURN(const auto earlier, EarlierReports(flags.against));
  RL_ASSIGN_OR_RETURN(const auto page, ReportFile::Create(flags.html));
  OpProfiler profiler;
  ModelSessionOptions options;
  options.observer = &profiler;
  RL_ASSIGN_OR_RETURN(ConfiguredModel model, LoadModel(config, console));
  RL_RETURN_IF_ERROR(CheckGenerates(flags, model.model));
  const bool encodes = model.model.facts().encodes();
  if (encodes) options.outputs = GraphOutputs::kBatch;
  RL_RETURN_IF_ERROR(SetCapacity(sizes, model.model));
  options.plugin_paths = config.plugins;
  RL_ASSIGN_OR_RETURN(const auto engine,
                      ModelSession::Open(std::move(model.model), options,
                                         ProcessHooks(model.environment), console));
  if (engine->model().facts().denoises()) {
    return MakeError(ErrorKind::kUsage, "model.canvas",
                     "profile generates one token after another, and this model denoises canvases; "
                     "use bench --trace FILE --trace-ops");
  }
  if (encodes) RL_RETURN_IF_ERROR(CheckLength(*engine, static_cast<size_t>(sizes.prompt)));
  RL_ASSIGN_OR_RETURN(auto reports, Measure(*engine, profiler, sizes, !flags.no_peaks));
  std::vector<ProfiledTest> tests;
  for (ProfileReport& report : reports) {
    ProfiledTest test{std::move(report), {}};
    if (flags.against) {
      RL_ASSIGN_OR_RETURN(test.before, FindTest(earlier, test.report.test, *flags.against));
    }
    RL_RETURN_IF_ERROR(WriteTest(test, sizes, flags.json, console));
    tests.push_back(std::move(test));
  }
  if (page) RL_RETURN_IF_ERROR(page->Write(ProfilePage(tests, static_cast<size_t>(sizes.slowest))));
  return 0;
}

}  // namespace

void AddProfileCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<ProfileFlags>();
  CLI::App* command = app.add_subcommand("profile", "Show where the time of steps goes, by op");
  AddModelOptions(*command, flags->config);
  command->add_option("-p,--n-prompt", flags->prompt, "Tokens of the prompt")->option_text("N");
  command->add_option("-n,--n-gen", flags->generated, "Tokens to generate after it")
      ->option_text("N");
  command
      ->add_option("-r,--repetitions", flags->repetitions,
                   "Runs of both; the medians are shown, and how far they are apart")
      ->option_text("N");
  command->add_option("--slowest", flags->slowest, "How many of the slowest ops to list")
      ->option_text("N");
  command
      ->add_option("--html", flags->html,
                   "Write a page with rooflines, the kinds of ops, layers and the slowest ops")
      ->option_text("FILE");
  command->add_option("--against", flags->against, "Compare with the --json of an earlier call")
      ->option_text("FILE");
  command->add_flag("--no-peaks", flags->no_peaks, "Do not measure the peaks of the device");
  command->add_flag("--json", flags->json, "One JSON object per test and line, with all ops");
  command->get_option("--ctx-size")
      ->description("Tokens that fit; 0: the model's context length [default as many as needed]");
  command->footer(R"(Examples:
  rullama profile -m model.gguf
  rullama profile -m model.gguf -p 2048 -n 64 --slowest 50
  rullama profile -m model.gguf --html profile.html
  rullama profile -m model.gguf --json > before.json
  rullama profile -m model.gguf --backend vulkan --against before.json)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return RunProfile(*flags, context.console); };
  });
}

}  // namespace rullama::cli
