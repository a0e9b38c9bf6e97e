// The file of --trace: what sessions did, in the JSON format of Chrome's trace viewer, which
// Perfetto (https://ui.perfetto.dev) opens. Each session is a process. One track of it shows the
// steps with the plans, inputs, copies and reads, one track for each device its segments, and one
// for each slot the requests; each request also has a track of its own with its waiting, reading
// and writing. With ops, each worker of a device has a track with the ops that it runs, where its
// waiting for other workers is a gap.
//
// Thread safety: observers may be called from any thread, and AddSession() too. A span takes about
// 100 bytes of memory until the file is written. Errors: those of AtomicFile (io.*).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/reports/op_groups.h"
#include "core/base/status.h"
#include "core/gguf/atomic_file.h"
#include "engine/engine_observer.h"

namespace rullama::cli {

// --trace and --trace-ops.
struct TraceFlags {
  std::optional<std::string> path = {};
  bool ops = false;
};

class TraceRecorder {
 public:
  // `ops`: whether to record what plugins tell about ops.
  explicit TraceRecorder(bool ops) : start_(StepSpan::Clock::now()), ops_(ops) {}
  // The observer of one session, which lives as long as the recorder. Names are any bytes.
  [[nodiscard]] EngineObserver* AddSession(std::string name);
  [[nodiscard]] bool empty() const;
  // The whole file.
  [[nodiscard]] std::string ToJson() const;

 private:
  struct Recorded {
    StepSpan span;  // without its names
    std::string name;
  };
  // Small, because a step has thousands of them.
  struct RecordedOp {
    const CostedGroup* group;  // with the cost of the whole op
    OpTime::Clock::time_point begin, end;
    uint32_t device;
    uint32_t worker;
  };
  // Records one session; guarded by mutex_ of the recorder.
  class Session final : public EngineObserver {
   public:
    Session(TraceRecorder& recorder, std::string name)
        : recorder_(recorder), name_(std::move(name)) {}
    void OnSpan(const StepSpan& span) override;
    void OnRequest(const RequestSpan& span) override;
    [[nodiscard]] bool wants_ops() const override { return recorder_.ops_; }
    void OnOp(const SegmentRun& run, const OpTime& time) override;

   private:
    friend class TraceRecorder;
    TraceRecorder& recorder_;
    std::string name_;
    std::vector<Recorded> spans_;
    std::vector<RequestSpan> requests_;
    OpGroups groups_;
    std::deque<RecordedOp> ops_;
    std::map<size_t, std::string> devices_;  // their backends, by index
  };

  // With the mutex held.
  void AppendSession(const Session& session, size_t process, std::string& text) const;

  StepSpan::Clock::time_point start_;
  bool ops_;
  mutable std::mutex mutex_;
  std::deque<Session> sessions_;  // guarded by mutex_
};

// A recorder and the file that it goes to.
class TraceFile {
 public:
  // Null without a path. Opens the file, so that a name that cannot be written is noticed before
  // the work begins; the file appears when Finish() is done.
  static Result<std::unique_ptr<TraceFile>> Create(const TraceFlags& flags);
  // io.same_file if the trace would replace `input`.
  [[nodiscard]] Status CheckIsNot(const std::string& input) const {
    return file_.CheckIsNot(input);
  }
  [[nodiscard]] EngineObserver* AddSession(std::string name) {
    return recorder_.AddSession(std::move(name));
  }
  // The result of a command; then the file is written. A command that failed leaves a trace of what
  // it had done, if it had run anything, and its own error.
  static Result<int> Finish(const std::unique_ptr<TraceFile>& trace, Result<int> result);

 private:
  TraceFile(AtomicFile file, bool ops) : file_(std::move(file)), recorder_(ops) {}
  Status Write();

  AtomicFile file_;
  TraceRecorder recorder_;
};

// The observer of a session of `trace`; null without one.
inline EngineObserver* TraceOf(TraceFile* trace, std::string name) {
  return trace == nullptr ? nullptr : trace->AddSession(std::move(name));
}

}  // namespace rullama::cli
