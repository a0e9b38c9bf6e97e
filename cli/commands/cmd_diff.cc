// rullama diff: the same graph and the same tokens on several backends, value by value.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/diff_model.h"
#include "cli/commands/diff_training.h"
#include "cli/reports/diff_page.h"
#include "cli/reports/diff_report.h"
#include "cli/reports/report_file.h"
#include "cli/reports/trace.h"
#include "core/config/nearest_key.h"
#include "core/diff/bisect.h"
#include "core/diff/compare.h"
#include "core/diff/probes.h"
#include "core/diff/router_selections.h"
#include "core/runtime/output_names.h"

namespace rullama::cli {
namespace {

struct DiffFlags {
  ConfigFlags config;
  PromptFlags prompt;
  std::vector<std::string> backends;
  std::string level = "layer";
  std::optional<uint64_t> random_model;
  std::optional<std::string> html;
  std::optional<std::string> heat;
  TraceFlags trace;
  bool bisect = false;
  bool train = false;
  bool json = false;
};

// The values of the baseline and the selections that were pinned to compute them.
struct Expectation {
  DiffValues values, given;
};

// Runs the model on backends, each opened once for each run.
class Comparison {
 public:
  Comparison(const DiffFlags& flags, const DiffModel& model, const Config& config,
             Registry& registry, TraceFile* trace, Console& console)
      : flags_(flags),
        model_(model),
        config_(config),
        registry_(registry),
        trace_(trace),
        console_(console) {
    if (flags.level == "op") watched_ = ComparableValues(model.graph);
    if (flags.level == "layer") watched_ = model.layers;
    selections_ = RouterSelections(model.graph);
  }

  Result<std::vector<DiffReport>> Run() {
    const std::string baseline = BaselineOf(flags_.backends);
    console_.Note(fmt::format("{} tokens of {}; the baseline is {}", model_.tokens.size(),
                              model_.name, baseline));
    NoteWhatIsNotSeen();
    RL_ASSIGN_OR_RETURN(const DiffValues expected, RunOn(baseline, watched_, {}));
    std::vector<DiffReport> reports;
    for (const std::string& backend : flags_.backends) {
      if (backend == baseline) continue;
      RL_ASSIGN_OR_RETURN(const DiffValues actual, RunOn(backend, watched_, {}));
      Expectation expectation{expected, OtherSelections(actual, expected)};
      if (!expectation.given.empty()) {
        console_.Note(fmt::format("{} runs again, with the choices of {}", baseline, backend));
        RL_ASSIGN_OR_RETURN(expectation.values, RunOn(baseline, watched_, expectation.given));
      }
      DiffReport report = Compare(backend, actual, expectation.values);
      if (flags_.bisect && report.above) {
        RL_ASSIGN_OR_RETURN(report.culprit, Bisect(backend, baseline, expectation));
        report.bisected = true;
        if (!report.culprit) {
          RL_ASSIGN_OR_RETURN(report.first_op, FirstOpAbove(backend, baseline, expectation.given));
        }
      }
      reports.push_back(std::move(report));
    }
    return reports;
  }

 private:
  void NoteWhatIsNotSeen() {
    const auto tokens = std::ssize(model_.tokens);
    if (model_.sliding_window > 0 && tokens <= model_.sliding_window) {
      console_.Note(fmt::format(
          "the {} tokens fit into the sliding window of {}, so what it cuts off is not compared; a "
          "longer prompt (--file) does that",
          tokens, model_.sliding_window));
    }
    if (flags_.random_model && model_.heads == 1) {
      console_.Note(
          "this random model has one head, so heads that are mixed up are not seen; try other "
          "seeds");
    }
  }

  Result<DiffValues> RunOn(const std::string& backend, std::vector<std::string> names,
                           const DiffValues& given) {
    RL_ASSIGN_OR_RETURN(const BackendDevices devices,
                        OpenDevices(registry_, ConfigOfBackend(config_, backend), console_));
    const auto watch = [&names](const std::string& name) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    };
    if (flags_.heat) watch(*flags_.heat);
    for (const RouterSelection& selection : selections_) {
      watch(selection.scores);
      watch(selection.indices);
    }
    return RunDiffModel(model_, model_.graph, names, given, devices, TraceOf(trace_, backend));
  }

  // The choices of `actual`, or none if `expected` has the same.
  [[nodiscard]] DiffValues OtherSelections(const DiffValues& actual,
                                           const DiffValues& expected) const {
    DiffValues given;
    bool same = true;
    for (const RouterSelection& selection : selections_) {
      given[selection.indices] = actual.at(selection.indices);
      same = same && actual.at(selection.indices) == expected.at(selection.indices);
    }
    return same ? DiffValues() : given;
  }

  // Each of two scores may be off by what any value may be.
  [[nodiscard]] bool IsAbove(const SelectionError& error) const {
    return !(error.gap <= 2 * std::sqrt(config_.diff.nmse));
  }

  [[nodiscard]] bool IsAbove(const ValueError& value, const LogitsError& logits) const {
    return !(value.nmse <= config_.diff.nmse) || !(logits.mean_kl <= config_.diff.kl) ||
           logits.top1 < config_.diff.top1;
  }

  [[nodiscard]] ErrorMap MapOf(const std::string& name, const std::vector<float>& actual,
                               const std::vector<float>& expected) const {
    ErrorMap map{name, std::ssize(model_.tokens), 0, std::vector<double>(actual.size())};
    map.columns = std::ssize(actual) / map.rows;
    for (size_t i = 0; i < actual.size(); ++i) {
      const double a = actual[i], b = expected[i];
      map.cells[i] = a == b ? 0 : std::abs(a - b);  // equal infinities do not differ
    }
    return map;
  }

  DiffReport Compare(const std::string& backend, const DiffValues& actual,
                     const DiffValues& expected) const {
    DiffReport report;
    report.backend = backend;
    report.thresholds = config_.diff;
    std::vector<std::string> names = watched_;
    const std::string logits(output_names::kLogits);
    if (std::ranges::find(names, logits) == names.end()) names.push_back(logits);
    for (const std::string& name : names) {
      ValueRow row{name, CompareValues(actual.at(name), expected.at(name))};
      row.above = !(row.error.nmse <= config_.diff.nmse);
      report.above = report.above || row.above;
      report.values.push_back(std::move(row));
    }
    for (const RouterSelection& selection : selections_) {
      SelectionRow row{
          selection.indices,
          CompareSelection(actual.at(selection.indices), expected.at(selection.scores), selection)};
      if (row.error.rows == 0) continue;
      row.above = IsAbove(row.error);
      report.above = report.above || row.above;
      report.selections.push_back(std::move(row));
    }
    report.positions =
        CompareLogitsByPosition(actual.at(logits), expected.at(logits), model_.vocabulary);
    report.texts = model_.texts;
    report.logits = SummaryOf(report.positions);
    if (flags_.heat) {
      report.map = MapOf(*flags_.heat, actual.at(*flags_.heat), expected.at(*flags_.heat));
    }
    report.above = report.above || IsAbove({}, report.logits);
    return report;
  }

  // Whether the logits are above a threshold when the ops of `on_baseline`, by name, run on the
  // baseline and the others on `backend`.
  Result<bool> IsBad(const Graph& graph, const std::string& backend, const std::string& baseline,
                     std::set<std::string, std::less<>> on_baseline,
                     const Expectation& expectation) {
    console_.Note(fmt::format("bisect: {} of {} ops on {}", graph.ops.size() - on_baseline.size(),
                              graph.ops.size(), backend));
    RL_ASSIGN_OR_RETURN(BackendDevices devices,
                        OpenDevices(registry_, ConfigOfBackend(config_, backend), console_));
    devices.devices.resize(1);
    RL_ASSIGN_OR_RETURN(BackendDevices other,
                        OpenDevices(registry_, ConfigOfBackend(config_, baseline), console_));
    devices.devices.push_back(std::move(other.devices.front()));
    devices.policy = {};
    devices.policy.fallback = FallbackPolicy::kAllow;
    devices.policy.host_device = 1;
    devices.policy.device_names = {backend, baseline};
    devices.policy.on_host = std::move(on_baseline);
    RL_ASSIGN_OR_RETURN(const DiffValues values,
                        RunDiffModel(model_, graph, {}, expectation.given, devices,
                                     TraceOf(trace_, "bisect: " + backend)));
    const std::vector<float>& actual = values.at(std::string(output_names::kLogits));
    const std::vector<float>& expected = expectation.values.at(std::string(output_names::kLogits));
    return IsAbove(CompareValues(actual, expected),
                   CompareLogits(actual, expected, model_.vocabulary));
  }

  // The first op that takes the logits above a threshold when it runs on `backend` and all after it
  // on the baseline.
  Result<std::optional<Culprit>> Bisect(const std::string& backend, const std::string& baseline,
                                        const Expectation& expectation) {
    const Graph graph = WithoutStates(model_.graph);
    std::vector<std::string> ops;
    ops.reserve(graph.ops.size());
    for (const Op& op : graph.ops) ops.push_back(graph.value(op.results[0]).name);
    const auto is_bad = [&](size_t count) {
      const auto rest = ops.begin() + static_cast<std::ptrdiff_t>(count);
      return IsBad(graph, backend, baseline, {rest, ops.end()}, expectation);
    };
    RL_ASSIGN_OR_RETURN(const auto found, FindFirstBadOp(ops.size(), is_bad));
    if (!found) return std::optional<Culprit>();
    RL_ASSIGN_OR_RETURN(const bool others_are_bad,
                        IsBad(graph, backend, baseline, {ops[*found]}, expectation));
    const OpKind kind = graph.ops[*found].kind;
    Culprit culprit{ops[*found], std::string(NameOf(kind)), !others_are_bad};
    if (!culprit.alone) {
      std::set<std::string, std::less<>> same;
      for (size_t i = 0; i < ops.size(); ++i) {
        if (graph.ops[i].kind == kind) same.insert(ops[i]);
      }
      RL_ASSIGN_OR_RETURN(const bool other_kinds_are_bad,
                          IsBad(graph, backend, baseline, same, expectation));
      if (!other_kinds_are_bad) culprit.of_kind = same.size();
    }
    return std::optional<Culprit>(std::move(culprit));
  }

  // The op of the first value that is above its threshold when all are watched: all that can be
  // said if the logits are below theirs.
  Result<std::optional<NamedOp>> FirstOpAbove(const std::string& backend,
                                              const std::string& baseline,
                                              const DiffValues& given) {
    const std::vector<std::string> names = ComparableValues(model_.graph);
    RL_ASSIGN_OR_RETURN(const DiffValues actual, RunOn(backend, names, {}));
    RL_ASSIGN_OR_RETURN(const DiffValues expected, RunOn(baseline, names, given));
    for (const std::string& name : names) {
      if (CompareValues(actual.at(name), expected.at(name)).nmse <= config_.diff.nmse) continue;
      const ValueId id = model_.graph.Find(name);
      for (const Op& op : model_.graph.ops) {
        if (std::ranges::find(op.results, id) == op.results.end()) continue;
        return std::optional<NamedOp>({name, std::string(NameOf(op.kind))});
      }
    }
    return std::optional<NamedOp>();
  }

  const DiffFlags& flags_;
  const DiffModel& model_;
  const Config& config_;
  Registry& registry_;
  TraceFile* trace_;
  Console& console_;
  std::vector<std::string> watched_;
  std::vector<RouterSelection> selections_;
};

// --heat names a value that backends are compared on.
Status CheckHeat(const std::string& name, const Graph& graph) {
  const std::vector<std::string> names = ComparableValues(graph);
  if (std::ranges::find(names, name) != names.end()) return OkStatus();
  const std::string nearest = NearestName(name, names);
  return MakeError(
      ErrorKind::kUsage, "diff.heat",
      "--heat: found '{}', expected a floating-point value with a row for each token{}; "
      "--level op --json lists them",
      name, nearest.empty() ? "" : fmt::format(", such as {}", nearest));
}

Status CheckFlags(const DiffFlags& flags) {
  if (flags.backends.size() < 2) {
    return MakeError(ErrorKind::kUsage, "usage.backends",
                     "--backends names {} backend, expected two or more, such as cpu,reference",
                     flags.backends.size());
  }
  return OkStatus();
}

Result<int> Diff(const DiffFlags& flags, TraceFile* trace, Console& console) {
  RL_RETURN_IF_ERROR(CheckFlags(flags));
  if (flags.train) return DiffTraining(flags.config, flags.backends, flags.json, console);
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(flags.config));
  std::unique_ptr<DiffModel> model;
  if (flags.random_model) {
    RL_ASSIGN_OR_RETURN(model, OpenRandomDiffModel(*flags.random_model));
  } else {
    RL_ASSIGN_OR_RETURN(model, OpenDiffModel(flags.config, flags.prompt, console));
  }
  const Config& config = loaded.config.values();
  if (flags.heat) RL_RETURN_IF_ERROR(CheckHeat(*flags.heat, model->graph));
  RL_ASSIGN_OR_RETURN(const auto page, ReportFile::Create(flags.html));
  const auto registry = MakeRegistry(config, loaded.environment, flags.config.plugins);
  Comparison comparison(flags, *model, config, *registry, trace, console);
  RL_ASSIGN_OR_RETURN(const std::vector<DiffReport> reports, comparison.Run());
  const std::string baseline = BaselineOf(flags.backends);
  bool above = false;
  for (const DiffReport& report : reports) {
    above = above || report.above;
    RL_RETURN_IF_ERROR(console.Write(flags.json ? DiffJson(report, baseline).dump() + "\n"
                                                : DiffText(report, baseline)));
  }
  if (page != nullptr) {
    const DiffSubject subject{model->name, std::ssize(model->tokens), flags.level, baseline};
    RL_RETURN_IF_ERROR(page->Write(DiffPage(subject, model->graph, reports)));
  }
  registry->Shutdown();
  return above ? static_cast<int>(ErrorKind::kThreshold) : 0;
}

Result<int> DiffAndTrace(const DiffFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const auto trace, TraceFile::Create(flags.trace));
  return TraceFile::Finish(trace, Diff(flags, trace.get(), console));
}

}  // namespace

void AddDiffCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<DiffFlags>();
  CLI::App* command =
      app.add_subcommand("diff", "Compare backends: the same graph, the same tokens, every layer");
  AddModelOptions(*command, flags->config);
  command
      ->add_option(
          "--backends", flags->backends,
          "Backends to compare. The baseline is `reference` if it is among them, else the last")
      ->required()
      ->delimiter(',')
      ->option_text("A,B[,...]");
  command->add_option("-p,--prompt", flags->prompt.text, "Text whose tokens are run")
      ->option_text("TEXT");
  command->add_option("-f,--file", flags->prompt.path, "File with that text")->option_text("FILE");
  command->add_option("--prompt-ids", flags->prompt.ids_path, "File with token ids")
      ->option_text("FILE");
  command->add_option("--level", flags->level, "The values to compare: op, layer or logits")
      ->check(CLI::IsMember({"op", "layer", "logits"}))
      ->capture_default_str();
  command
      ->add_option("--random-model", flags->random_model,
                   "Instead of a file: a tiny model that this number makes up")
      ->option_text("SEED");
  command->add_flag("--bisect", flags->bisect,
                    "If they differ: find the op, by running half of the ops on the baseline");
  AddTraceOptions(*command, flags->trace);
  CLI::Option* html =
      command
          ->add_option(
              "--html", flags->html,
              "Write a page with charts: error by value, divergence by position, the first "
              "value that is off")
          ->option_text("FILE");
  command->add_option("--heat", flags->heat, "With --html: map of the errors of one value")
      ->needs(html)
      ->option_text("NAME");
  command
      ->add_flag("--train", flags->train,
                 "Instead of a forward pass: the gradients of a training step on --data")
      ->excludes("--prompt", "--file", "--prompt-ids", "--random-model", "--bisect", "--html",
                 "--trace");
  AddSetting(*command, flags->config, "--data", "training.data",
             "With --train: examples, as `rullama finetune` reads them")
      ->option_text("FILE");
  command->add_flag("--json", flags->json, "One JSON object for each backend");
  command->footer(
      "One step from an empty cache over all tokens. Values inside a composite op are not "
      "compared, even\n"
      "where a backend runs its parts. Thresholds are in the block `diff` of the configuration; "
      "the\n"
      "exit code is 7 if one is exceeded. Where scores of experts are so close that backends "
      "choose "
      "others, the\n"
      "baseline runs again with the same choice, and the choice is judged by its scores.\n"
      "--bisect judges by the logits; where an error does not reach them, it names the first value "
      "above.\n"
      "Values within the thresholds may still be wrong: rullama-conformance judges every op by "
      "its "
      "own bounds.\n"
      "With --train, A and B of the adapter are drawn by training.seed, and the gradients of the "
      "first\n"
      "step are compared, the worst first.\n\n"
      "Example:\n  rullama diff --config configs/tiny.yaml --backends cpu,reference -p \"The "
      "prince\"\n"
      "  rullama diff --backends mine,reference --plugin mine.so --random-model 7 --level op "
      "--bisect");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return DiffAndTrace(*flags, context.console); };
  });
}

}  // namespace rullama::cli
