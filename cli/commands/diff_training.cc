#include "cli/commands/diff_training.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands/diff_model.h"
#include "cli/commands/loading.h"
#include "core/diff/compare.h"
#include "engine/training/gradients.h"

namespace rullama::cli {
namespace {

// Rows of the table; the rest is smaller.
constexpr size_t kMaxShownRows = 20;

struct GradientRow {
  std::string name;
  ValueError error;
  bool above = false;  // the threshold
};

struct GradientReport {
  std::string backend = {};
  std::string baseline = {};
  double threshold = 0;  // NMSE
  LossSum loss;
  LossSum expected_loss;
  std::vector<GradientRow> rows = {};  // worst first

  [[nodiscard]] bool above() const {
    return std::ranges::any_of(rows, [](const GradientRow& row) { return row.above; });
  }
};

Result<StepGradients> GradientsOn(const std::string& backend, const ConfiguredModel& loaded,
                                  const ConfigFlags& flags, Console& console) {
  const Config config = ConfigOfBackend(loaded.model.config(), backend);
  TrainingSetup setup(loaded.model, config, ProcessHooks(loaded.environment), console);
  RL_RETURN_IF_ERROR(setup.Read());
  RL_RETURN_IF_ERROR(setup.OpenTrainer(flags.plugins));
  RL_RETURN_IF_ERROR(setup.DrawAdapter(/*with_b=*/true));
  return GradientsOfStep(setup, 0);
}

GradientReport Compare(const StepGradients& actual, const StepGradients& expected,
                       double threshold) {
  GradientReport report{
      .threshold = threshold, .loss = actual.loss, .expected_loss = expected.loss};
  report.rows.reserve(actual.parameters.size());
  for (size_t i = 0; i < actual.parameters.size(); ++i) {
    const ParameterGradient& one = actual.parameters[i];
    GradientRow row{one.name, CompareValues(one.values, expected.parameters[i].values)};
    row.above = !(row.error.nmse <= threshold);
    report.rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(report.rows, std::ranges::greater{},
                           [](const GradientRow& row) { return row.error.nmse; });
  return report;
}

std::string AsText(const GradientReport& report) {
  std::string text = fmt::format(
      "{} against {}; threshold: NMSE {:.3g}\nloss {:.7g}, of the baseline {:.7g}, over {} tokens\n"
      "{:<40} {:>10} {:>10} {:>12}\n",
      report.backend, report.baseline, report.threshold, report.loss.mean(),
      report.expected_loss.mean(), report.loss.tokens, "gradient", "NMSE", "max error",
      "1 - cosine");
  const size_t shown = std::min(kMaxShownRows, report.rows.size());
  for (const GradientRow& row : std::span(report.rows).first(shown)) {
    text += fmt::format("{:<40} {:>10.3g} {:>10.3g} {:>12.3g}{}\n", row.name, row.error.nmse,
                        row.error.max_error, std::max(0.0, 1 - row.error.cosine),
                        row.above ? "  ABOVE" : "");
  }
  if (shown < report.rows.size()) {
    text += fmt::format("{} other gradients have smaller errors; --json has all\n",
                        report.rows.size() - shown);
  }
  return text + (report.above() ? "different\n" : "the same, within the threshold\n");
}

nlohmann::json AsJson(const GradientReport& report) {
  nlohmann::json gradients = nlohmann::json::array();
  for (const GradientRow& row : report.rows) {
    gradients.push_back({{"name", row.name},
                         {"nmse", row.error.nmse},
                         {"max_error", row.error.max_error},
                         {"cosine", row.error.cosine},
                         {"not_finite", row.error.not_finite},
                         {"above", row.above}});
  }
  return {{"backend", report.backend},
          {"baseline", report.baseline},
          {"loss", report.loss.mean()},
          {"baseline_loss", report.expected_loss.mean()},
          {"gradients", std::move(gradients)},
          {"thresholds", {{"nmse", report.threshold}}},
          {"above", report.above()}};
}

}  // namespace

Result<int> DiffTraining(const ConfigFlags& flags, const std::vector<std::string>& backends,
                         bool json, Console& console) {
  RL_ASSIGN_OR_RETURN(const ConfiguredModel loaded, LoadModel(flags, console));
  const std::string baseline = BaselineOf(backends);
  RL_ASSIGN_OR_RETURN(const StepGradients expected, GradientsOn(baseline, loaded, flags, console));
  bool above = false;
  for (const std::string& backend : backends) {
    if (backend == baseline) continue;
    RL_ASSIGN_OR_RETURN(const StepGradients actual, GradientsOn(backend, loaded, flags, console));
    GradientReport report = Compare(actual, expected, loaded.model.config().diff.nmse);
    report.backend = backend;
    report.baseline = baseline;
    above = above || report.above();
    RL_RETURN_IF_ERROR(console.Write(json ? AsJson(report).dump() + "\n" : AsText(report)));
  }
  return above ? static_cast<int>(ErrorKind::kThreshold) : 0;
}

}  // namespace rullama::cli
