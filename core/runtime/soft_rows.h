// Rows whose embeddings are soft tokens of a picture or a sound: what a step of a graph with the
// inputs of media_names reads in addition to its StepRows.
//
// Ownership: SoftRowInputs borrows the session for the length of a call. Thread safety: one thread
// at a time. Errors: session.internal; those of Session::SetInput.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"

namespace rullama {

// The soft tokens of one picture or sound at rows [first, first + count) of a sequence.
struct SoftRows {
  int64_t first = 0;
  int64_t count = 0;
  // f32[count, width]; they stay the caller's.
  std::span<const float> values = {};
  // The rows see each other: those of a picture, if the model sees whole ones. All of them are in
  // one step.
  bool see_each_other = false;

  [[nodiscard]] int64_t end() const { return first + count; }
};

class SoftRowInputs {
 public:
  // `width`: that of the model's residual stream. `last_seen`: the graph has
  // media_names::kLastSeen.
  SoftRowInputs(int64_t width, bool last_seen) : width_(width), last_seen_(last_seen) {}

  // Sets the inputs for a step of rows [first, first + count) of a sequence. Of `media`, which are
  // ascending and do not overlap, those count that have rows in the step.
  Status Set(Session& session, std::span<const SoftRows> media, int64_t first, int64_t count);

 private:
  void Place(const SoftRows& medium, int64_t first, int64_t end);

  int64_t width_;
  bool last_seen_;
  // The inputs of the last step; kept for their memory.
  std::vector<float> soft_;
  std::vector<float> keep_;
  std::vector<int32_t> ends_;
};

}  // namespace rullama
