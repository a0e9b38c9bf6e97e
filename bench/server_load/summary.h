// Figures of a run, in the form of one JSON object.
//
// Thread safety: none needed; pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace rullama::bench {

// The outcome of a request. Times are seconds.
struct Sample {
  double late = 0;                        // after its time in the plan, when it was sent
  std::optional<double> first_text = {};  // after it was sent
  std::vector<double> gaps = {};          // between texts
  double total = 0;                       // until its end
  int64_t tokens = 0, prompt_tokens = 0;  // as the server counts them
  std::string error = {};                 // empty: none
};

// The middle and the upper end of some times, in milliseconds with two decimals: p50, p90, p99 and
// max. Null without any.
nlohmann::ordered_json Spread(std::vector<double> seconds);

// `seconds`: by the clock, of all samples together.
nlohmann::ordered_json Summary(const std::vector<Sample>& samples, double seconds);

}  // namespace rullama::bench
