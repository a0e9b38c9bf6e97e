// Values of results for benchmarks, which end the program with a message if something fails.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "core/base/status.h"

namespace rullama::bench {

template <typename T>
T Must(Result<T> result) {
  if (result) return *std::move(result);
  fmt::print(stderr, "{}\n", result.error().ToString());
  std::exit(1);
}

inline void Must(const Status& status) {
  if (status) return;
  fmt::print(stderr, "{}\n", status.error().ToString());
  std::exit(1);
}

}  // namespace rullama::bench
