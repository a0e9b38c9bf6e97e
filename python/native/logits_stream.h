// The logits of a text, a few rows at a time.
#pragma once

#include <rullama/engine/engine.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace rullama::python {

// Runs Engine::Logits() on a thread of its own, at most kMaxWaiting parts ahead of the reader.
//
// Thread safety: one reader; Cancel() from any thread. The destructor cancels and blocks for at
// most one step. It keeps the engine alive. A child of fork() has no such thread: Next() is the
// error engine.forked there, and the others do nothing.
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
  [[nodiscard]] int64_t vocabulary() const;

 private:
  struct Reading;
  [[nodiscard]] bool IsForked() const;

  pid_t home_;                        // the process that has the thread
  std::unique_ptr<Reading> reading_;  // stays in a child: its thread cannot be waited for
};

}  // namespace rullama::python
