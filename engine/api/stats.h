// The counters of an Engine. Value types.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace rullama {

// Counts values in buckets that grow as 1, 2, 5, 10, ... from 0.0001 to 100; seconds, or numbers of
// rows.
struct Histogram {
  static constexpr std::array<double, 19> kBounds = {1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2,
                                                     2e-2, 5e-2, 0.1,  0.2,  0.5,  1,    2,
                                                     5,    10,   20,   50,   100};

  void Observe(double value) {
    const auto* bucket = std::lower_bound(kBounds.begin(), kBounds.end(), value);
    ++counts[static_cast<size_t>(bucket - kBounds.begin())];
    sum += value;
  }

  std::array<uint64_t, kBounds.size() + 1> counts = {};  // [i]: up to kBounds[i]; then the rest
  double sum = 0;
};

// The steps of one kind.
struct StepStats {
  Histogram seconds = {};
  Histogram rows = {};
};

// Places of a draft whose tokens are counted by themselves.
inline constexpr size_t kCountedDraftPlaces = 8;

struct EngineStats {
  int64_t slots = 0;
  int64_t slots_busy = 0;    // have a request
  int64_t slots_paused = 0;  // of these, those that wait for a reader that is slow
  int64_t waiting = 0;       // requests without a slot
  int64_t kv_tokens = 0;     // tokens that requests with a slot hold in the caches
  int64_t prefix_bytes = 0;  // of host memory that snapshots of prompts take
  int64_t prefix_entries = 0;
  int64_t largest_snapshot = 0;  // bytes of the largest one so far
  uint64_t prefix_hits = 0;      // prompts of which a part was found
  uint64_t prefix_misses = 0;
  uint64_t prefix_evictions = 0;  // snapshots that gave way to others
  int64_t media_bytes = 0;        // of host memory that soft tokens of recent media take
  int64_t media_entries = 0;      // media whose soft tokens are kept
  uint64_t media_hits = 0;        // pictures and sounds whose soft tokens were found
  uint64_t media_misses = 0;      // those that were encoded
  uint64_t drafted = 0;           // tokens that were guessed in advance
  uint64_t drafts_accepted = 0;   // of these, those that answers have
  // The same by the place in their drafts, from the first one on.
  std::array<uint64_t, kCountedDraftPlaces> drafted_at = {};
  std::array<uint64_t, kCountedDraftPlaces> accepted_at = {};
  uint64_t constraint_failures = 0;  // answers under a schema that no token could continue
  uint64_t prefix_oversized = 0;     // snapshots that were larger than the limit of all
  bool device_lost = false;          // from now on all requests fail: open the model again
  Histogram mask_seconds = {};       // to make the mask of one token
  Histogram schema_seconds = {};     // to compile what an answer may be
  Histogram snapshot_save = {};      // seconds
  Histogram snapshot_restore = {};
  Histogram encode_seconds = {};  // of a picture or a sound
  StepStats decode = {};          // one token for each slot that writes, or for those of a group
  StepStats prompt = {};          // a chunk of a prompt
  StepStats denoise = {};         // of a canvas
};

// A slot of an Engine at a moment.
struct SlotActivity {
  int64_t task = -1;      // the number of its last request, from 1; -1: it had none
  int64_t tokens = 0;     // that it holds
  bool busy = false;      // it has a request
  bool drafts = false;    // drafts are made for its request
  int64_t drawn = 0;      // tokens of the answer so far
  int64_t remaining = 0;  // tokens that the answer may still get
  uint64_t seed = 0;
  std::shared_ptr<const std::string> note = {};  // Request::note; null: no request
};

}  // namespace rullama
