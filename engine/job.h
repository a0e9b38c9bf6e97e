// A request as the scheduler runs it: tokens in, tokens out.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/adapters_in_force.h"
#include "engine/answer_channel.h"
#include "engine/answer_constraints.h"
#include "engine/api/stats.h"
#include "engine/media/prompt_media.h"
#include "engine/scheduling/batch_session.h"
#include "engine/scheduling/snapshot_store.h"
#include "engine/thought_budget.h"
#include "samplers/row_sampling.h"

namespace rullama {

using EngineClock = std::chrono::steady_clock;

struct Job {
  enum class Kind : uint8_t {
    kGenerate,  // draws tokens after the prompt
    kEmbed,     // adds up the hidden states of the prompt's rows: one ResultRows
    kLogits,    // the logits of the prompt's rows: a ResultRows for each step
    kSave,      // a snapshot after the prompt, which ends at a cut point: a StoredSnapshot
    kLoad,      // restores `stored`, whose tokens are the prompt
    // The following have no prompt and do not run: they are done with `slot` once it is free, and
    // give a SlotResult.
    kStoreSlot,  // what it holds for the client
    kFillSlot,   // it holds `stored_slot` from then on
    kEraseSlot,  // it holds nothing from then on
  };
  Kind kind = Kind::kGenerate;
  // At least one id, and within the capacity: tokens, and ids of soft rows (soft_row_ids.h).
  std::vector<int32_t> prompt;
  std::vector<PlacedMedium> media = {};  // those of the soft rows, ascending
  std::vector<int64_t> cuts = {};        // of the prompt (cut_points.h)
  int64_t max_tokens = -1;               // as Request::max_tokens
  int64_t max_context = 0;               // as Request::max_context
  RowSampling sampling = {};             // `bias` points into `bias` below
  std::vector<TokenBias> bias = {};
  AnswerConstraint constraint = {};
  std::optional<ThoughtBudget> thoughts = {};  // none: they may have any length
  int32_t top_logprobs = -1;
  int32_t prompt_logprobs = -1;  // as Request::prompt_logprobs; -1 once they were handed out
  std::optional<int64_t> max_draft = {};             // none: as the engine's configuration says
  std::optional<double> min_draft_probability = {};  // the same
  bool reuse_prefix = true;
  bool reuse_answers = false;                    // as Request::reuse_answers
  PromptSpace space = {};                        // its client, and the adapters in force
  int32_t slot = -1;                             // as Request::slot
  std::shared_ptr<const std::string> note = {};  // as Request::note
  // More answers to the same prompt, which start together with this one and let it read the prompt.
  std::vector<std::unique_ptr<Job>> choices = {};
  std::optional<StoredSnapshot> stored = {};
  std::shared_ptr<const StoredSlot> stored_slot = {};
  // Whose snapshots are kept on disk; null: they are not.
  std::shared_ptr<const SnapshotStore::Owner> owner = {};
  std::optional<SnapshotStore::Prompt> loaded = {};  // of its prompt, from the disk
  EngineClock::time_point submitted = EngineClock::now();
  std::shared_ptr<AnswerChannel> channel;
};

// Whether a job reads its prompt in the chunks of a prompt, so that others may reuse its rows.
inline bool ReadsChunks(Job::Kind kind) {
  return kind == Job::Kind::kGenerate || kind == Job::Kind::kSave;
}

inline bool IsSlotJob(Job::Kind kind) { return kind >= Job::Kind::kStoreSlot; }

// Runs jobs on a thread of its own. Destroying it ends all jobs as cancelled.
// Thread safety: all member functions from any thread.
class JobRunner {
 public:
  JobRunner() = default;
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;
  virtual ~JobRunner() = default;

  // Queues a job. Its results come through its channel.
  virtual void Submit(std::unique_ptr<Job> job) = 0;
  [[nodiscard]] virtual EngineStats stats() const = 0;
  [[nodiscard]] virtual std::vector<SlotActivity> slots() const = 0;
};

}  // namespace rullama
