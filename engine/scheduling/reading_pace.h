// The pace at which waiting prompts are read between two tokens of the answers that are being
// written: the time between these tokens stays below a limit.
//
// The time that rows take is learned from rounds: what passed from one decode step to the next,
// less a decode step without reading, over the rows that were read. A limit that is too short for a
// chunk does not cut it: the bytes of an answer depend on where its prompt is cut
// (docs/numerics.md, "Rows of a batch"), and not on what else runs. So one chunk may always be
// read.
//
// Value type; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/job.h"

namespace rullama {

class ReadingPace {
 public:
  using Clock = EngineClock;

  // `most`: between two tokens.
  explicit ReadingPace(Clock::duration most) : most_(SecondsOf(most)) {}

  // The time between two steps that gave tokens, and what was read in it.
  struct Gap {
    // Seconds without those of the step itself; 0 as long as these are unknown, and if there was
    // something else to do.
    double reading = 0;
    int64_t rows = 0;    // of prompts that were read
    int64_t chunks = 0;  // that these were
  };
  // This number of answers got tokens. Returns the gap before these; none after WritesNothing().
  std::optional<Gap> TakeTokens(Clock::time_point now, int64_t answers);
  // No answer waits for tokens.
  void WritesNothing();

  // Whether a chunk of this many rows may be read before the next tokens.
  [[nodiscard]] bool MayRead(int64_t rows, Clock::time_point now) const;
  // A chunk was read.
  void TakeChunk(int64_t rows);
  // Something else was done for a prompt: a picture or a sound was encoded.
  void TakeOther() { did_other_ = true; }

  // Where a single chunk made the gap longer than the limit and a shorter one would not: what a
  // user can do, for a warning.
  [[nodiscard]] std::optional<std::string> AdviceOn(const Gap& gap) const;

 private:
  // Learns from a gap of this length, and completes what is known about it.
  void Learn(double seconds, Gap& gap);
  void ForgetRead();
  static double SecondsOf(Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  }

  double most_;  // seconds
  std::optional<Clock::time_point> last_tokens_ = {};
  // The rows and chunks that were read since then: `weight_` counts short chunks as longer ones
  // that take as long.
  int64_t rows_ = 0, chunks_ = 0, weight_ = 0;
  bool did_other_ = false;
  int64_t answers_ = 0;                           // of the last decode step
  double seconds_of_tokens_ = 0;                  // of a decode step for as many; 0: not known
  std::optional<double> seconds_of_weight_ = {};  // of a row that is read
};

}  // namespace rullama
