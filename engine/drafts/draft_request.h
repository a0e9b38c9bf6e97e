// A sequence to be continued by a draft.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "samplers/row_sampling.h"

namespace rullama {

struct DraftRequest {
  int32_t slot = 0;
  uint64_t client = 0;
  // Prompt and answer so far. The last one has no row yet; the step that drew it for this slot kept
  // the hidden row that an assistant starts from (DraftGraphs::PlaceOf).
  std::span<const int32_t> tokens = {};
  int64_t most = 0;                 // tokens to draft
  int64_t most_guessed = 0;         // by a model, where a lookup has found nothing
  double min_probability = 0;       // the draft ends before a less likely token
  RowSampling sampling = {};        // without a mask
  std::vector<int32_t> draft = {};  // the result
  bool guessed = false;             // the assistant was asked
};

}  // namespace rullama
