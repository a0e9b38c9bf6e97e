// The tests of `rullama bench`, and the speeds of their repetitions. Value types; const member
// functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/op_cost.h"

namespace rullama::cli {

enum class BenchKind {
  kPrompt,    // pp: all tokens at once
  kAllRows,   // pa: the same, with the logits of every token
  kGenerate,  // tg: one after another
  kDenoise,   // dn: one step of a canvas, conditioned on the one before
  kEncode,    // enc: a picture of a number of soft tokens
};

struct BenchTest {
  BenchKind kind = BenchKind::kPrompt;
  int64_t tokens = 0;
  int64_t depth = 0;  // tokens in the cache before

  [[nodiscard]] std::string_view kind_name() const;
  [[nodiscard]] std::string name() const;  // "pp512 @ d1024"
};

struct BenchMeasurement {
  BenchTest test;
  std::vector<double> seconds;  // of each repetition
  OpCost cost;                  // of one repetition
  // kEncode: the time of making inputs of the pixels on the host, which is a part of each
  // repetition. It is measured by itself after each.
  std::vector<double> prepare_seconds = {};

  // Tokens per second of each repetition, ascending.
  [[nodiscard]] std::vector<double> Rates() const;
  // Statistics of the rates; the deviation is 0 for a single repetition.
  [[nodiscard]] double Mean() const;
  [[nodiscard]] double StandardDeviation() const;
  [[nodiscard]] double Median() const;
  // The time of a repetition at the median rate.
  [[nodiscard]] double MedianSeconds() const;
  // The median of prepare_seconds; 0 for other tests than kEncode.
  [[nodiscard]] double MedianPrepareSeconds() const;
};

}  // namespace rullama::cli
