// The end of the time that compiling a schema may take.
//
// Thread safety: none; it is made and checked on the thread that compiles.
#pragma once

#include <time.h>

#include <chrono>

#include "core/base/status.h"

namespace rullama::constraint {

class CompileDeadline {
 public:
  using Duration = std::chrono::nanoseconds;
  static constexpr Duration kLimit = std::chrono::seconds(1);

  // `limit`: processor time of the calling thread, so that what a schema may cost does not depend
  // on what else the machine does.
  explicit CompileDeadline(Duration limit = kLimit) : end_(Used() + limit) {}

  // Error schema.too_large (kUsage) once it has passed. Reads the clock: loops ask once for each
  // round that may take microseconds.
  [[nodiscard]] Status Check() const {
    if (Used() <= end_) return OkStatus();
    return MakeError(ErrorKind::kUsage, "schema.too_large",
                     "it takes more than a second to compile the schema; write a simpler one");
  }

 private:
  // The processor time of this thread so far.
  [[nodiscard]] static Duration Used() {
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }

  Duration end_;
};

}  // namespace rullama::constraint
