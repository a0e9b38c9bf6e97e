#include "engine/scheduling/reading_pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace rullama {
namespace {

// A shorter chunk takes about as long as one of these rows: the time to read the weights.
constexpr int64_t kLeastWeight = 64;

int64_t WeightOf(int64_t rows) { return std::max(rows, kLeastWeight); }

}  // namespace

std::optional<ReadingPace::Gap> ReadingPace::TakeTokens(Clock::time_point now, int64_t answers) {
  // A step for more answers takes longer, and that is not the time of reading.
  if (answers != answers_) seconds_of_tokens_ = 0;
  answers_ = answers;
  std::optional<Gap> gap;
  if (last_tokens_) {
    gap = {.rows = rows_, .chunks = chunks_};
    if (!did_other_) Learn(SecondsOf(now - *last_tokens_), *gap);
  }
  last_tokens_ = now;
  ForgetRead();
  return gap;
}

void ReadingPace::Learn(double seconds, Gap& gap) {
  if (weight_ == 0) {
    seconds_of_tokens_ = seconds;
    return;
  }
  const double reading = std::max(seconds - seconds_of_tokens_, 0.0);
  if (seconds_of_tokens_ > 0) gap.reading = reading;
  const double found = reading / static_cast<double>(weight_);
  // Slower rounds count at once, faster ones by half.
  const double known = seconds_of_weight_.value_or(found);
  seconds_of_weight_ = std::max(found, (known + found) / 2);
}

void ReadingPace::WritesNothing() {
  last_tokens_.reset();
  ForgetRead();
}

void ReadingPace::ForgetRead() {
  rows_ = chunks_ = weight_ = 0;
  did_other_ = false;
}

bool ReadingPace::MayRead(int64_t rows, Clock::time_point now) const {
  if (chunks_ == 0 && !did_other_) return true;
  if (!last_tokens_ || !seconds_of_weight_) return false;
  // Steps that draw nothing may still run: the time that passed is at least that of the rows.
  const double expected = *seconds_of_weight_ * static_cast<double>(weight_);
  const double so_far = std::max(SecondsOf(now - *last_tokens_), expected);
  const double next = *seconds_of_weight_ * static_cast<double>(WeightOf(rows));
  return so_far + next + seconds_of_tokens_ <= most_;
}

std::optional<std::string> ReadingPace::AdviceOn(const Gap& gap) const {
  constexpr int64_t kFewestRows = 32;
  if (gap.chunks != 1 || gap.rows <= kFewestRows || gap.reading <= most_) return std::nullopt;
  const auto rows = static_cast<int64_t>(static_cast<double>(gap.rows) * most_ / gap.reading);
  return fmt::format(
      "answers waited {:.0f} ms for a step of {} tokens of a prompt, longer than "
      "server.max_gap_ms ({:.0f}): set context.prefill_chunk to {} or less",
      gap.reading * 1e3, gap.rows, most_ * 1e3,
      std::bit_floor(static_cast<uint64_t>(std::max(rows, kFewestRows))));
}

void ReadingPace::TakeChunk(int64_t rows) {
  rows_ += rows;
  ++chunks_;
  weight_ += WeightOf(rows);
}

}  // namespace rullama
