#include "cli/bench/bench_output.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands/build_info.h"
#include "cli/commands/json_text.h"
#include "cli/commands/loading.h"
#include "cli/commands/model_summary.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

BenchRow RowOf(const BenchMeasurement& m) {
  const double seconds = m.MedianSeconds();
  return {.test = m.test.name(),
          .mean_per_s = m.Mean(),
          .stddev_per_s = m.StandardDeviation(),
          .gb_per_s = m.cost.stored_bytes / seconds / 1e9,
          .gflop_per_s = m.cost.operations / seconds / 1e9};
}

json NumberOrNull(const std::string& text) {
  const auto number = json::parse(text, nullptr, /*allow_exceptions=*/false);
  return number.is_number() ? number : json();
}

json AsJson(const BenchMeasurement& m, const BenchRow& row, const BenchSubject& subject) {
  const std::vector<double> rates = m.Rates();
  const auto tokens = static_cast<double>(m.test.tokens);
  return {{"test", row.test},
          {"kind", m.test.kind_name()},
          {"tokens", m.test.tokens},
          {"depth", m.test.depth},
          {"repetitions", rates.size()},
          {"mean_per_s", row.mean_per_s},
          {"stddev_per_s", row.stddev_per_s},
          {"median_per_s", m.Median()},
          {"min_per_s", rates.front()},
          {"max_per_s", rates.back()},
          {"median_s", m.MedianSeconds()},
          {"prepare_s", m.MedianPrepareSeconds()},
          {"bytes_per_token", m.cost.stored_bytes / tokens},
          {"flops_per_token", m.cost.operations / tokens},
          {"gb_per_s", row.gb_per_s},
          {"gflop_per_s", row.gflop_per_s},
          {"model", subject.model},
          {"quantization", subject.quantization},
          {"model_bytes", subject.bytes},
          {"parameters", subject.parameters},
          {"backend", subject.backend},
          {"device", subject.device},
          {"driver", subject.driver},
          {"threads", NumberOrNull(subject.threads)},
          {"version", RULLAMA_VERSION},
          {"commit", BuildCommit()}};
}

// The line below the table that has the time of a picture; empty for other tests.
std::string PictureLine(const BenchMeasurement& m) {
  if (m.test.kind != BenchKind::kEncode) return {};
  const double seconds = m.MedianSeconds();
  return fmt::format(
      "{}: {:.2f} ms a picture, {:.2f} of them for its pixels, {:.2f} pictures/s (medians)\n",
      m.test.name(), 1e3 * seconds, 1e3 * m.MedianPrepareSeconds(), 1 / seconds);
}

}  // namespace

BenchSubject SubjectOf(const ModelSession& engine) {
  const ModelFile& file = engine.model().file;
  const ModelSummary model = Summarize(file);
  const DeviceDescription& device = engine.devices().main().description();
  return {.model = file.ollama ? file.name : std::filesystem::path(file.name).filename().string(),
          .quantization = model.quantization,
          .bytes = model.bytes,
          .parameters = model.parameters,
          .backend = engine.devices().backend,
          .device = device.name,
          .driver = device.driver,
          .threads = ThreadsOf(engine),
          .build = BuildText()};
}

Status BenchOutput::Write(const BenchSubject& subject, const BenchMeasurement& measurement) {
  const bool first = points_.empty();
  subject_ = subject;
  const BenchTest& test = measurement.test;
  const BenchRow row = RowOf(measurement);
  points_.push_back({std::string(test.kind_name()), test.tokens, test.depth, row.mean_per_s,
                     row.stddev_per_s, ThreadsText(subject)});
  if (std::string warning = SpreadWarning(row); !warning.empty()) {
    warnings_.push_back(WithThreads(subject, std::move(warning)));
  }
  pictures_ += WithThreads(subject, PictureLine(measurement));
  if (as_json_) return console_.Write(JsonLine(AsJson(measurement, row, subject)));
  if (first) RL_RETURN_IF_ERROR(console_.Write(BenchTableHead(subject)));
  return console_.Write(BenchTableRow(subject, row));
}

Status BenchOutput::Finish() {
  if (!as_json_) RL_RETURN_IF_ERROR(console_.Write(BenchTableFoot(subject_) + pictures_));
  for (const std::string& warning : warnings_) {
    // Part of the text that people paste; machines read the numbers.
    if (as_json_) {
      console_.Warn(warning);
    } else {
      RL_RETURN_IF_ERROR(console_.Write("warning: " + warning + "\n"));
    }
  }
  return OkStatus();
}

std::string BenchOutput::PlotTitle() const {
  return fmt::format("{} {} on {}: {}", subject_.model, subject_.quantization, subject_.backend,
                     subject_.device);
}

std::string BenchOutput::ThreadsText(const BenchSubject& subject) const {
  if (!several_threads_) return {};
  return fmt::format("{} thread{}", subject.threads, subject.threads == "1" ? "" : "s");
}

std::string BenchOutput::WithThreads(const BenchSubject& subject, std::string line) const {
  if (!several_threads_ || line.empty()) return line;
  return fmt::format("{}: {}", ThreadsText(subject), line);
}

}  // namespace rullama::cli
