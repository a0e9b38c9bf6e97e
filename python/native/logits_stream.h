// The logits of a text, a few rows at a time.
#pragma once

#include <rullama/engine/engine.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace rullama::python {

// Runs Engine::Logits() on a thread of its own, at most kMaxWaiting parts ahead of the reader.
//
// Thread safety: one reader; Cancel() from any thread. The destructor cancels and blocks for at
// most one step. It keeps the engine alive.
class LogitsStream {
 public:
  struct Part {
    int64_t first = 0;          // the position that the first row follows
    std::vector<float> logits;  // [rows, vocabulary]
  };

  LogitsStream(std::shared_ptr<Engine> engine, std::vector<int32_t> ids);
  ~LogitsStream();
  LogitsStream(const LogitsStream&) = delete;
  LogitsStream& operator=(const LogitsStream&) = delete;

  // The next part, or nothing after the last one. Blocks. Errors as Engine::Logits().
  Result<std::optional<Part>> Next();
  void Cancel();
  [[nodiscard]] int64_t vocabulary() const { return engine_->info().vocabulary; }

 private:
  void Run(const std::vector<int32_t>& ids);

  std::shared_ptr<Engine> engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Part> waiting_;
  Status status_ = OkStatus();
  bool over_ = false;
  bool cancelled_ = false;
  std::thread thread_;  // last: uses the others
};

}  // namespace rullama::python
