// For tests: the value of a Result that has to have one.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "core/base/status.h"

namespace rullama {

// Returns the value; an error is reported and ends the program.
template <typename T>
T Must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().ToString();
    std::abort();
  }
  return *std::move(result);
}

}  // namespace rullama
