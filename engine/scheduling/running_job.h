// A job that has a slot.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/session_stats.h"
#include "engine/drafts/draft_length.h"
#include "engine/job.h"
#include "engine/prompt_encoder.h"
#include "engine/scheduling/canvas_writer.h"

namespace rullama {

// Steps without a draft after which a slot whose drafts did not pay tries one; twice as many after
// each such draft that was wrong.
inline constexpr int64_t kFirstPatience = 16;

struct RunningJob {
  std::unique_ptr<Job> job;
  uint64_t number = 0;  // of the jobs that got a slot, from 1
  EngineClock::time_point started;

  // Reading the prompt.
  int64_t read = 0;         // rows of the prompt in the slot
  int64_t reused = 0;       // of these, found there or in the prefix cache
  uint64_t read_round = 0;  // the last round of PromptReader with a chunk of it
  // The slot whose prompt this job shares, until that slot has read it.
  std::optional<int32_t> reader;
  bool after_answer = false;  // SlotTable::Choice::goes_on: the prefix cache does not keep it
  PromptEncoder media;        // of the job, which has none of its own any more
  double encode_seconds = 0;  // spent on its media
  std::vector<float> sum;     // of an embedding
  std::vector<PromptLogprob> scores;  // of the tokens of the prompt that were read

  // Writing the answer.
  EngineClock::time_point first_token;  // unset until the prompt is read
  SessionStats after_prompt;
  int64_t drawn = 0;                       // tokens handed out
  std::optional<LogprobStep> end;          // of the end token, if asked for
  std::optional<int32_t> token;            // drawn, not yet in the slot
  bool in_step = false;                    // of a group of TokenDecoder that is started
  uint64_t last_step = 0;                  // the number of its last decode step
  std::unique_ptr<CanvasWriter> canvases;  // of a model that denoises

  // Drafts.
  std::vector<int32_t> sequence;  // prompt and answer so far
  int64_t draft_length = 0;       // of the next draft, at most; 0: it is the first
  std::vector<int32_t> draft;     // of the next step
  DraftCounts drafts;
  bool guessed = false;                            // `draft` is the assistant's
  std::optional<DraftAcceptance> acceptance = {};  // of the assistant's drafts; none so far
  int64_t undrafted = 0;                           // steps since the last one with a draft
  int64_t patience = kFirstPatience;               // such steps until a draft is tried

  [[nodiscard]] bool writes() const { return token || canvases; }
  [[nodiscard]] bool has_read() const { return read == std::ssize(job->prompt); }
  [[nodiscard]] bool wrote() const { return first_token != EngineClock::time_point(); }
};

}  // namespace rullama
