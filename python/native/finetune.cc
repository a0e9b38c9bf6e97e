#include "python/native/finetune.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <rullama/engine/training.h>

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>

#include "python/native/await.h"
#include "python/native/failure.h"
#include "python/native/interpreter.h"
#include "python/native/training_group.h"

namespace nb = nanobind;

namespace rullama::python {
namespace {

// Hands reports to a Python function. Called on the thread of the run, which has no GIL.
class Reporter {
 public:
  explicit Reporter(const nb::object& function) : function_(function) {}

  [[nodiscard]] FineTuneHooks Hooks() {
    return {.on_report = [this](const TrainingReport& report) { Train(report); },
            .on_validation = [this](const ValidationReport& report) { Validate(report); },
            .on_saved = [this](const std::string& folder) { Save(folder); },
            .cancelled = cancelled_};
  }
  void Cancel() { *cancelled_ = true; }
  // Raises what the function has raised. With the GIL.
  void RaiseAgain() {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  void Train(const TrainingReport& report) {
    const GilHeld held;
    if (function_.is_none()) return;
    nb::dict values = ValuesOf("train", report.step, report.loss);
    values["grad_norm"] = report.norm;
    values["learning_rate"] = report.rate;
    values["seconds"] = report.seconds;
    Call(values);
  }
  void Validate(const ValidationReport& report) {
    const GilHeld held;
    if (function_.is_none()) return;
    nb::dict values = ValuesOf("validation", report.step, report.loss);
    values["is_best"] = report.is_best;
    Call(values);
  }
  void Save(const std::string& folder) {
    const GilHeld held;
    if (function_.is_none()) return;
    nb::dict values;
    values["kind"] = "saved";
    values["folder"] = folder;
    Call(values);
  }
  static nb::dict ValuesOf(const char* kind, int64_t step, const LossSum& loss) {
    nb::dict values;
    values["kind"] = kind;
    values["step"] = step;
    values["loss"] = loss.mean();
    values["tokens"] = loss.tokens;
    return values;
  }
  void Call(const nb::dict& values) {
    if (raised_) return;
    try {
      function_(values);
    } catch (const nb::python_error&) {
      raised_ = std::current_exception();
      Cancel();
    }
  }

  const nb::object& function_;
  std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::exception_ptr raised_;
};

}  // namespace

nb::dict FineTuneFromPython(const std::string& model, const std::string& backend,
                            const std::string& config_file,
                            const std::vector<std::pair<std::string, std::string>>& settings,
                            const std::vector<std::string>& plugin_paths, const std::string& resume,
                            const std::string& first_adapter, bool overwrite,
                            const nb::object& on_report, const nb::object& group,
                            bool on_main_thread) {
  std::vector<std::pair<int, std::string>> log;
  EngineOptions engine{.model = model,
                       .backend = backend,
                       .config_file = config_file,
                       .plugin_paths = plugin_paths,
                       .log = [&log](LogLevel level, std::string_view text) {
                         log.emplace_back(static_cast<int>(level), text);
                       }};
  for (const auto& [key, value] : settings) engine.settings.push_back({key, value});
  std::optional<PythonGroup> ranks;
  if (!group.is_none()) ranks.emplace(group);
  const FineTuneOptions options{.resume = resume,
                                .first_adapter = first_adapter,
                                .overwrite = overwrite,
                                .group = ranks ? &*ranks : nullptr};
  Reporter reporter(on_report);
  const CancelledAtExit at_exit([&] { reporter.Cancel(); });
  auto result = Await(
      on_main_thread, [&] { return FineTune(engine, options, reporter.Hooks()); },
      [&] { reporter.Cancel(); });
  if (ranks) ranks->RaiseAgain();
  reporter.RaiseAgain();
  const FineTuneResult run = Unwrap(std::move(result));
  nb::dict values;
  values["folder"] = run.folder;
  values["step"] = run.step;
  values["loss"] = run.history.steps.empty() ? 0 : run.history.steps.back();
  values["losses"] = nb::cast(run.history.steps);
  nb::list validations;
  for (const LossPoint& one : run.history.validations) {
    validations.append(nb::make_tuple(one.step, one.loss));
  }
  values["validations"] = validations;
  values["test_loss"] = run.test.tokens > 0 ? nb::cast(run.test.mean()) : nb::none();
  values["log"] = nb::cast(log);
  return values;
}

}  // namespace rullama::python
