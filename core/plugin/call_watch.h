// Reports a call of a plugin that takes too long: a driver that hangs otherwise looks like rullama
// itself hanging. It only reports; nothing is interrupted.
//
// Ownership: the thread is joined by the destructor. Thread safety: one call at a time. Both
// functions run on the thread of the watch: `describe` while the call lasts, which ends no earlier,
// so it must not block; `tell` holds nothing up but the destructor. Errors: none; if the system
// gives no thread, nothing is watched.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/ir/graph.h"

namespace rullama {

// A call in progress. What it refers to outlives the call; `function` is a literal.
struct WatchedCall {
  std::string_view function;
  const Graph* graph = nullptr;  // the graph that is queried, compiled or executed, or null
  std::string_view object = {};  // the weight it is about; may be empty
};

class CallWatch {
 public:
  using Describe = std::function<std::string(const WatchedCall&)>;
  using Tell = std::function<void(const std::string&)>;

  // Describes a call that lasts longer than `limit` and tells the text, once for each function.
  CallWatch(std::chrono::milliseconds limit, Describe describe, Tell tell);
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;
  ~CallWatch();

  // Watches a call for its lifetime. Takes no system call.
  class Scope {
   public:
    Scope(CallWatch& watch, const WatchedCall& call);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    CallWatch& watch_;
  };

 private:
  using Clock = std::chrono::steady_clock;
  void Watch();

  const std::chrono::milliseconds limit_;
  const Describe describe_;
  const Tell tell_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool stop_ = false;
  bool running_ = false;
  WatchedCall call_;
  Clock::time_point begin_;
  std::vector<std::string_view> told_;  // functions
  std::thread thread_;
};

// "35 matmul, 12 rms_norm and 9 others": the kinds of a graph's ops, the most frequent first.
std::string DescribeOps(const Graph& graph);

}  // namespace rullama
