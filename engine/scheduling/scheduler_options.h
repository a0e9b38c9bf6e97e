// What a Scheduler needs to know of its session, its model and its configuration. Value types.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/canvas_generator.h"
#include "engine/drafts/assistant_drafter.h"
#include "engine/drafts/draft_length.h"
#include "engine/drafts/model_drafter.h"
#include "engine/engine_observer.h"
#include "engine/job.h"
#include "engine/media/media_encoder.h"
#include "engine/model_program.h"
#include "samplers/canvas_random.h"

namespace rullama {

struct DraftOptions {
  int64_t most = 0;                       // tokens of a draft; 0: there are no drafts
  int64_t least = 0;                      // a shorter draft is not used
  bool lookup = false;                    // lookup_draft.h
  ModelDrafter* drafter = nullptr;        // borrowed; drafts where the lookup finds nothing
  AssistantDrafter* assistant = nullptr;  // borrowed; in place of `drafter`
  // The length of a draft changes no answer, so it may depend on other answers and on the clock.
  bool equal_rows = true;
  DraftCosts usual_costs = {};  // UsualCosts() of the backend, for lengths without `equal_rows`
  bool as_pays = false;         // drafts of the assistant are as long as pays
  double min_probability = 0;   // as DraftRequest::min_probability
  std::shared_ptr<const std::atomic<double>> acceptance = {};  // as EngineSetup::draft_acceptance
};

// The most rows of a decode step of this many slots.
[[nodiscard]] int64_t DecodeRows(int64_t slots, int64_t most_drafted);

// For a model that denoises.
struct CanvasOptions {
  CanvasGeneratorOptions generator;
  DiffusionRandom random = DiffusionRandom::kPhilox;
};

struct SchedulerOptions {
  ProgramGraphs graphs = {};  // of the session: a batch's, or those of a model that denoises
  int64_t slots = 1;
  int64_t capacity = 0;  // tokens per slot
  int64_t vocabulary = 0;
  int64_t chunk = 0;                       // most rows between two cut points of a prompt
  std::chrono::milliseconds max_gap{250};  // between two tokens, for reading several prompts
  uint64_t prefix_bytes = 0;               // of host memory for snapshots of prompts
  uint64_t media_bytes = 0;                // of host memory for soft tokens of recent media
  DraftOptions drafts = {};
  std::optional<CanvasOptions> canvas = {};
  std::vector<int32_t> end_tokens = {};
  MediaEncoder* encoder = nullptr;                          // of the media of jobs; borrowed
  bool whole_pictures = false;                              // as MediaFacts::whole_pictures
  std::function<void(std::string_view text)> warn = {};     // called on the thread of the scheduler
  std::shared_ptr<const std::atomic<bool>> cancelled = {};  // as HostHooks::cancelled
  std::shared_ptr<SnapshotStore> snapshots = {};            // of prompts on disk; null: none
  EngineObserver* observer = nullptr;                       // as HostHooks::observer

  // The most tokens that prompt and answer of a job may have.
  [[nodiscard]] int64_t CapacityOf(const Job& job) const;
  [[nodiscard]] bool IsCancelled(const Job& job) const;
  [[nodiscard]] bool IsEnd(int32_t token) const;
};

}  // namespace rullama
