// The end of the time that compiling a schema may take.
//
// Thread safety: immutable.
#pragma once

#include <chrono>

#include "core/base/status.h"

namespace rullama::constraint {

class CompileDeadline {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kLimit = std::chrono::seconds(1);

  explicit CompileDeadline(Clock::duration limit = kLimit) : end_(Clock::now() + limit) {}

  // Error schema.too_large (kUsage) once it has passed. Reads the clock: loops ask once for each
  // round that may take microseconds.
  [[nodiscard]] Status Check() const {
    if (Clock::now() <= end_) return OkStatus();
    return MakeError(ErrorKind::kUsage, "schema.too_large",
                     "it takes more than a second to compile the schema; write a simpler one");
  }

 private:
  Clock::time_point end_;
};

}  // namespace rullama::constraint
