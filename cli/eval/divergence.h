// How far the predictions of a model are from those of another one, whose log-probabilities are in
// a file. The numbers are those of llama-perplexity --kl-divergence. Value types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cli/eval/log_prob_file.h"

namespace rullama::cli {

// The mean of some numbers, and the standard error of it; 0 for ten numbers or fewer.
struct Mean {
  double value = 0;
  double error = 0;
};

struct DivergenceReport {
  int64_t tokens = 0;
  Mean nll = {};           // of this model, natural logarithm
  Mean base_nll = {};      // of the other one
  Mean log_ratio = {};     // of the perplexities: ln(this / other)
  double correlation = 0;  // of the two, -1 to 1
  Mean kl = {};            // of this model's distribution from the other's
  double kl_max = 0, kl_99 = 0, kl_median = 0;
  double shift_rms = 0;  // of the probability of the right token
  Mean same_best = {};   // share of rows in which both have the same best token
};

class Divergence {
 public:
  // A row: this model's logits before the token `next`, and the other's log-probabilities.
  void Add(std::span<const float> logits, const LogProbRow& base, int32_t next);
  [[nodiscard]] DivergenceReport Report() const;

 private:
  struct Sums {
    double sum = 0, squares = 0;
    void Add(double x) {
      sum += x;
      squares += x * x;
    }
  };
  [[nodiscard]] Mean MeanOf(const Sums& sums) const;

  Sums nll_, base_nll_, kl_;
  double products_ = 0;  // of nll and base_nll
  double shifts_ = 0;    // squares
  int64_t same_best_ = 0;
  std::vector<float> kls_;
};

}  // namespace rullama::cli
