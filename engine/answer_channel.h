// Carries the results of one request from the engine's thread to the thread that reads them.
//
// Thread safety: one writer (the engine's thread) and one reader; Cancel() and cancelled() from any
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/slot_file.h"
#include "core/runtime/snapshot_file.h"
#include "engine/adapters_in_force.h"
#include "engine/api/request.h"
#include "engine/prompt_scores.h"

namespace rullama {

// Wakes the engine's thread: a request has come, was cancelled, or has room again.
class Wakeup {
 public:
  void Notify();
  // Blocks until Notify() was called since the last Wait().
  void Wait();
  // The same, but not for longer than `most`. Returns whether Notify() was called.
  bool WaitFor(std::chrono::milliseconds most);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool notified_ = false;
};

struct ReadProgress {
  int64_t done = 0;
  int64_t total = 0;
  int64_t reused = 0;  // tokens among `done` that were not read again
};
struct DrawnToken {
  int32_t token = 0;
  LogprobStep logprobs = {};
};
// The tokens that a finished canvas brings the answer.
struct DrawnCanvas {
  std::vector<int32_t> tokens = {};
};
struct Draft {
  int64_t step = 0;  // from 1
  int64_t max_steps = 0;
  CanvasDraft canvas = {};
};
// Rows of logits, or the sum of the rows of a text's hidden states.
struct ResultRows {
  int64_t first = 0;
  std::vector<float> values = {};
};
// The end of a job that is done with a slot.
struct SlotResult {
  int64_t tokens = 0;
  std::shared_ptr<StoredSlot> stored = {};  // of kStoreSlot
  std::vector<int32_t> erased = {};         // of kEraseSlot
  SharedAdapters adapters = {};             // that the tokens were read with
};
// The end of a request.
struct RequestEnd {
  StopReason reason = StopReason::kEndOfGeneration;
  std::optional<LogprobStep> end = {};  // of the token that ended the answer, if asked for
  AnswerCosts costs = {};
};
using ChannelItem = std::variant<ReadProgress, DrawnToken, DrawnCanvas, Draft, ResultRows,
                                 StoredSnapshot, PromptScores, SlotResult, RequestEnd, Error>;

class AnswerChannel {
 public:
  // `every_draft`: as Request::every_draft.
  explicit AnswerChannel(std::shared_ptr<Wakeup> wakeup, bool every_draft = false)
      : wakeup_(std::move(wakeup)), every_draft_(every_draft) {}

  // Adds an item. A progress, and a draft unless every one is asked for, replaces one that has not
  // been read. After RequestEnd or Error nothing is added.
  void Push(ChannelItem item);
  // Whether the reader is so far behind that the request should pause; until half was read.
  [[nodiscard]] bool full() const { return full_.load(std::memory_order_acquire); }

  // The next item; blocks until there is one. After RequestEnd or Error it must not be called.
  ChannelItem Take();

  // Asks the engine to end the request.
  void Cancel();
  [[nodiscard]] bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  [[nodiscard]] const std::atomic<bool>* cancel_flag() const { return &cancelled_; }

 private:
  // Items that wait for the reader before the request pauses, where each token of a canvas counts;
  // rows of results are large, so one.
  static constexpr size_t kMaxItems = 256;

  [[nodiscard]] static size_t Count(const ChannelItem& item) {
    const auto* canvas = std::get_if<DrawnCanvas>(&item);
    return canvas == nullptr ? 1 : canvas->tokens.size();
  }

  std::shared_ptr<Wakeup> wakeup_;
  bool every_draft_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<ChannelItem> items_;
  size_t waiting_ = 0;  // their counts
  std::atomic<bool> full_ = false;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace rullama
