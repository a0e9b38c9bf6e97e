// The output of `rullama bench`: a row, or a line of JSON, for each test as soon as it is known.
//
// Thread safety: none; used by main's thread.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/bench_measurement.h"
#include "cli/bench/bench_table.h"
#include "cli/reports/bench_plot.h"
#include "cli/terminal/console.h"
#include "core/base/status.h"
#include "engine/model_session.h"

namespace rullama::cli {

// The properties of a loaded model that tests of it share.
BenchSubject SubjectOf(const ModelSession& engine);

class BenchOutput {
 public:
  // several_threads: the tests run with several numbers of threads, which warnings and plots name.
  BenchOutput(bool as_json, bool several_threads, Console& console)
      : as_json_(as_json), several_threads_(several_threads), console_(console) {}

  // All calls, for the subjects of one device.
  Status Write(const BenchSubject& subject, const BenchMeasurement& measurement);
  // The lines below the rows.
  Status Finish();

  // The speeds of what was written.
  [[nodiscard]] const std::vector<BenchPoint>& points() const { return points_; }
  // Model, type, backend and device.
  [[nodiscard]] std::string PlotTitle() const;

 private:
  // "2 threads", or nothing if there is only one number of threads.
  [[nodiscard]] std::string ThreadsText(const BenchSubject& subject) const;
  // A line that begins with it, if there is any.
  [[nodiscard]] std::string WithThreads(const BenchSubject& subject, std::string line) const;

  bool as_json_;
  bool several_threads_;
  Console& console_;
  BenchSubject subject_;  // of the last row
  std::vector<BenchPoint> points_;
  std::vector<std::string> warnings_;
  std::string pictures_;  // a line for each test of pictures
};

}  // namespace rullama::cli
