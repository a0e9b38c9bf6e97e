// Speeds of `rullama bench` as a picture. Pure function; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/drawing/picture.h"

namespace rullama::cli {

struct BenchPoint {
  std::string kind;  // "pp", "tg", ...
  int64_t tokens = 0;
  int64_t depth = 0;
  double mean_per_s = 0;
  double stddev_per_s = 0;
  std::string setting = {};  // by which the tests of a call differ too: "2 threads", or nothing
};

// A chart over the lengths of prompts, and one over depths if several were measured, with curves of
// their own for each setting. Kinds differ by orders of magnitude, so speeds are on a logarithmic
// axis.
drawing::Picture BenchPlot(const std::string& title, const std::vector<BenchPoint>& points);

}  // namespace rullama::cli
