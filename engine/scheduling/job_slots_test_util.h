// The slots of a scheduler without its thread, over a model without a file, for tests of what gives
// slots to jobs and runs them.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "engine/drafts/cut_points.h"
#include "engine/scheduling/counting_model_test_util.h"
#include "engine/scheduling/engine_counters.h"
#include "engine/scheduling/scheduler_options.h"
#include "engine/scheduling/slot_contents.h"
#include "engine/scheduling/slot_jobs.h"

namespace rullama {

inline constexpr int64_t kSlotCapacity = 64;
inline constexpr int64_t kPromptChunk = 4;

// A greedy answer to the prompt. `wakeup` is that of its channel.
inline std::unique_ptr<Job> CountingJob(std::shared_ptr<Wakeup> wakeup, std::vector<int32_t> prompt,
                                        int64_t max_tokens = -1) {
  auto job = std::make_unique<Job>();
  job->cuts = CutPoints(std::ssize(prompt), kPromptChunk, {});
  job->prompt = std::move(prompt);
  job->max_tokens = max_tokens;
  job->sampling.temperature = 0;
  job->channel = std::make_shared<AnswerChannel>(std::move(wakeup), /*every_draft=*/true);
  return job;
}

struct JobSlots {
  explicit JobSlots(int64_t slots)
      : batch(slots, kSlotCapacity, kPromptChunk),
        options{.graphs = batch.graphs(),
                .slots = slots,
                .capacity = kSlotCapacity,
                .vocabulary = kCountedTokens,
                .chunk = kPromptChunk,
                .end_tokens = {kEndToken}},
        contents(batch.session(), options),
        jobs(batch.session(), options, contents, counters) {
    counters.SetSlots(slots);
  }

  [[nodiscard]] std::unique_ptr<Job> MakeJob(std::vector<int32_t> prompt,
                                             int64_t max_tokens = -1) const {
    return CountingJob(wakeup, std::move(prompt), max_tokens);
  }

  std::shared_ptr<Wakeup> wakeup = std::make_shared<Wakeup>();
  CountingBatch batch;
  SchedulerOptions options;
  EngineCounters counters;
  SlotContents contents;
  SlotJobs jobs;
};

// What the channel holds, without waiting for more.
inline std::vector<ChannelItem> TakeAll(AnswerChannel& channel) {
  constexpr int64_t kMark = -1;
  channel.Push(ResultRows{.first = kMark});
  std::vector<ChannelItem> items;
  while (true) {
    ChannelItem item = channel.Take();
    const auto* rows = std::get_if<ResultRows>(&item);
    if (rows != nullptr && rows->first == kMark) return items;
    items.push_back(std::move(item));
  }
}

// The last item of this type among those that the channel holds.
template <typename Item>
std::optional<Item> TakeLast(AnswerChannel& channel) {
  std::optional<Item> last;
  for (ChannelItem& item : TakeAll(channel)) {
    if (auto* found = std::get_if<Item>(&item)) last.emplace(std::move(*found));
  }
  return last;
}

}  // namespace rullama
