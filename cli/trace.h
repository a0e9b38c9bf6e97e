// The file of --trace: what a session did, in the JSON format of Chrome's trace viewer, which
// Perfetto (https://ui.perfetto.dev) opens. One track shows the steps with the plans, inputs,
// copies and reads, and one track for each device its segments.
//
// Thread safety: OnSpan() and Write() may be called from any thread. A span takes about 100 bytes
// of memory until the file is written. Errors: those of AtomicFile (io.*).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/atomic_file.h"
#include "core/runtime/step_observer.h"

namespace rullama::cli {

class TraceRecorder final : public StepObserver {
 public:
  TraceRecorder() : start_(StepSpan::Clock::now()) {}
  void OnSpan(const StepSpan& span) override;
  // The whole file. `devices`: the names of SessionOptions::devices; text of any bytes.
  [[nodiscard]] std::string ToJson(const std::vector<std::string>& devices) const;

 private:
  struct Recorded {
    StepSpan span;  // without its name
    std::string name;
  };
  StepSpan::Clock::time_point start_;
  mutable std::mutex mutex_;
  std::vector<Recorded> spans_;  // guarded by mutex_
};

// A recorder and the file that it goes to.
class TraceFile {
 public:
  // Null without a path. Opens the file, so that a name that cannot be written is noticed before
  // the work begins; the file appears when Write() is done. `input` must be another file.
  static Result<std::unique_ptr<TraceFile>> Create(const std::optional<std::string>& path,
                                                   const std::string& input);
  [[nodiscard]] StepObserver* observer() { return &recorder_; }
  // Called once, at the end.
  Status Write(const std::vector<std::string>& devices);

 private:
  explicit TraceFile(AtomicFile file) : file_(std::move(file)) {}
  AtomicFile file_;
  TraceRecorder recorder_;
};

}  // namespace rullama::cli
