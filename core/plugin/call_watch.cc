#include "core/plugin/call_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "core/ir/ops.h"

namespace rullama {

CallWatch::CallWatch(std::chrono::milliseconds limit, Describe describe, Tell tell)
    : limit_(limit), describe_(std::move(describe)), tell_(std::move(tell)) {
  try {
    thread_ = std::thread([this] { Watch(); });
  } catch (const std::system_error&) {
    // A process at its thread limit works on without being watched.
  }
}

CallWatch::~CallWatch() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  done_.notify_one();
  thread_.join();
}

CallWatch::Scope::Scope(CallWatch& watch, const WatchedCall& call) : watch_(watch) {
  const std::lock_guard lock(watch_.mutex_);
  watch_.running_ = true;
  watch_.call_ = call;
  watch_.begin_ = Clock::now();
}

CallWatch::Scope::~Scope() {
  const std::lock_guard lock(watch_.mutex_);
  watch_.running_ = false;
}

// Calls do not wake this thread, which would cost each of them a system call: it looks once in each
// `limit_`, and then waits for the end of the time of the call that it finds.
void CallWatch::Watch() {
  std::unique_lock lock(mutex_);
  const auto waits = [this] {
    return running_ && std::ranges::find(told_, call_.function) == told_.end();
  };
  for (;;) {
    const Clock::time_point due = (waits() ? begin_ : Clock::now()) + limit_;
    if (done_.wait_until(lock, due, [this] { return stop_; })) return;
    if (!waits() || Clock::now() < begin_ + limit_) continue;
    told_.push_back(call_.function);
    const std::string text = describe_(call_);
    lock.unlock();
    tell_(text);
    lock.lock();
  }
}

std::string DescribeOps(const Graph& graph) {
  constexpr size_t kMostKinds = 6;
  std::map<OpKind, size_t> counts;
  for (const Op& op : graph.ops) ++counts[op.kind];
  std::vector<std::pair<size_t, OpKind>> kinds;
  kinds.reserve(counts.size());
  for (const auto& [kind, count] : counts) kinds.emplace_back(count, kind);
  std::ranges::stable_sort(kinds, std::ranges::greater(), &std::pair<size_t, OpKind>::first);
  std::string text;
  size_t others = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto& [count, kind] = kinds[i];
    if (i >= kMostKinds) {
      others += count;
    } else {
      text += fmt::format("{}{} {}", i == 0 ? "" : ", ", count, NameOf(kind));
    }
  }
  if (others == 0) return text;
  return fmt::format("{} and {} other{}", text, others, others == 1 ? "" : "s");
}

}  // namespace rullama
