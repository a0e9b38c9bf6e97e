#include "engine/drafts/draft_length.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace rullama {
namespace {

constexpr double kLeastGain = 1.03;
constexpr double kNewWeight = 0.1;  // of a measurement in a decaying mean
// The first drafts of an answer say more than what was assumed before.
constexpr int64_t kAssumedDrafts = 2;

// A step of one row more than any that was measured is assumed to take this much longer: what the
// first row more costs a processor, so that lengths that might not pay are not tried.
constexpr double kUnknownRow = 1.25;

// The time that each further row of a step is assumed to take on a backend, in steps of one row.
double UsualRowOf(std::string_view backend) {
  constexpr double kShared = 0.35;  // rows share their products on tensor cores
  constexpr double kUsual = 0.5;
  return backend == "cuda" ? kShared : kUsual;
}

}  // namespace

// The first step of a size compiles its plan, so the first measurement says nothing.
void DraftCosts::Mean::Add(double value) {
  if (++count == 1) return;
  seconds = count == 2 ? value : seconds + kNewWeight * (value - seconds);
}

void DraftCosts::CountStep(int64_t rows, double seconds) {
  if (rows >= 1 && rows < std::ssize(steps_)) steps_[static_cast<size_t>(rows)].Add(seconds);
}

void DraftCosts::CountDraft(int64_t tokens, double seconds) {
  if (tokens >= 1) token_.Add(seconds / static_cast<double>(tokens));
}

bool DraftCosts::Knows(int64_t rows) const {
  // Steps of more rows have no drafts.
  return rows >= std::ssize(steps_) || steps_[static_cast<size_t>(rows)].seconds > 0;
}

double DraftCosts::StepSeconds(int64_t rows) const {
  int64_t below = 0;
  int64_t above = 0;
  for (int64_t i = 1; i < std::ssize(steps_); ++i) {
    if (steps_[static_cast<size_t>(i)].seconds == 0) continue;
    if (i <= rows) below = i;
    if (i >= rows && above == 0) above = i;
  }
  const auto seconds = [this](int64_t i) { return steps_[static_cast<size_t>(i)].seconds; };
  if (below == 0) return above == 0 ? 0 : seconds(above);
  if (above == 0) {
    double beyond = seconds(below);
    for (int64_t i = below; i < rows; ++i) beyond *= kUnknownRow;
    return beyond;
  }
  if (above == below) return seconds(below);
  const double part = static_cast<double>(rows - below) / static_cast<double>(above - below);
  return seconds(below) + part * (seconds(above) - seconds(below));
}

DraftCosts UsualCosts(std::string_view backend) {
  const double row = UsualRowOf(backend);
  constexpr double kToken = 1.0 / 16;
  constexpr int kCounted = 2;  // measurements that a mean needs
  DraftCosts costs;
  for (int i = 0; i < kCounted; ++i) {
    for (int64_t rows = 1; rows <= kMaxDraftLength + 1; ++rows) {
      costs.CountStep(rows, 1 + row * static_cast<double>(rows - 1));
    }
    costs.CountDraft(1, kToken);
  }
  return costs;
}

void DraftAcceptance::Count(int64_t drafted, int64_t accepted) {
  // Tokens after the first wrong one were not put to the test.
  const int64_t reached = std::min<int64_t>({drafted, accepted + 1, std::ssize(right_)});
  for (int64_t i = 0; i < reached; ++i) {
    const auto place = static_cast<size_t>(i);
    const double mean_weight = 1 / static_cast<double>(++counts_[place] + kAssumedDrafts);
    right_[place] +=
        std::max(kNewWeight, mean_weight) * ((i < accepted ? 1.0 : 0.0) - right_[place]);
  }
}

DraftAcceptance DraftAcceptance::OfNextAnswer() const {
  DraftAcceptance next;
  for (size_t i = 0; i < right_.size(); ++i) next.right_[i] = (next.right_[i] + right_[i]) / 2;
  return next;
}

double DraftAcceptance::Expected(int64_t n) const {
  double all_right = 1;
  double sum = 0;
  for (int64_t i = 0; i < std::min<int64_t>(n, std::ssize(right_)); ++i) {
    all_right *= right_[static_cast<size_t>(i)];
    sum += all_right;
  }
  return sum;
}

int64_t BestDraftLength(const DraftCosts& costs, const DraftAcceptance& acceptance, int64_t others,
                        int64_t most) {
  if (!costs.Knows(others + 1)) return 0;
  if (costs.TokenSeconds() == 0) return std::min(most, kFirstDraftLength);
  const double plain = costs.StepSeconds(others + 1);
  const auto tokens_of_others = static_cast<double>(others);
  double best = kLeastGain * (tokens_of_others + 1) / plain;  // tokens per second
  int64_t length = 0;
  for (int64_t n = 1; n <= most; ++n) {
    const double seconds =
        costs.StepSeconds(others + 1 + n) + static_cast<double>(n) * costs.TokenSeconds();
    const double rate = (tokens_of_others + 1 + acceptance.Expected(n)) / seconds;
    if (rate <= best) continue;
    best = rate;
    length = n;
  }
  return length;
}

}  // namespace rullama
