#include "engine/answer_channel.h"

#include <utility>

namespace rullama {

void Wakeup::Notify() {
  {
    const std::lock_guard lock(mutex_);
    notified_ = true;
  }
  changed_.notify_one();
}

void Wakeup::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return notified_; });
  notified_ = false;
}

bool Wakeup::WaitFor(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [this] { return notified_; });
  return std::exchange(notified_, false);
}

void AnswerChannel::Push(ChannelItem item) {
  {
    const std::lock_guard lock(mutex_);
    const bool replaces = std::holds_alternative<ReadProgress>(item) ||
                          (std::holds_alternative<Draft>(item) && !every_draft_);
    if (replaces && !items_.empty() && items_.back().index() == item.index()) {
      items_.back() = std::move(item);
      return;
    }
    waiting_ += Count(item);
    if (waiting_ >= kMaxItems || std::holds_alternative<ResultRows>(item)) full_ = true;
    items_.push_back(std::move(item));
  }
  added_.notify_one();
}

ChannelItem AnswerChannel::Take() {
  ChannelItem item;
  bool has_room = false;
  {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [this] { return !items_.empty(); });
    item = std::move(items_.front());
    items_.pop_front();
    waiting_ -= Count(item);
    const bool rows = std::holds_alternative<ResultRows>(item);
    if (full_ && (rows || waiting_ <= kMaxItems / 2)) {
      full_ = false;
      has_room = true;
    }
  }
  if (has_room) wakeup_->Notify();
  return item;
}

void AnswerChannel::Cancel() {
  cancelled_.store(true, std::memory_order_release);
  wakeup_->Notify();
}

}  // namespace rullama
