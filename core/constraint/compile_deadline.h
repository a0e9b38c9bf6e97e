// The end of the time that compiling a schema may take.
//
// Thread safety: none; it is made and checked on the thread that compiles.
#pragma once

#include <chrono>

#include "core/base/clock.h"
#include "core/base/status.h"

namespace rullama::constraint {

class CompileDeadline {
 public:
  using Duration = std::chrono::nanoseconds;
  static constexpr Duration kLimit = std::chrono::seconds(1);

  // `limit`: processor time of the calling thread, so that what a schema may cost does not depend
  // on what else the machine does.
  explicit CompileDeadline(Duration limit = kLimit) : end_(ThreadTime() + limit) {}

  // Error schema.too_large (kUsage) once it has passed. Reads the clock: loops ask once for each
  // round that may take microseconds.
  [[nodiscard]] Status Check() const {
    if (ThreadTime() <= end_) return OkStatus();
    return MakeError(ErrorKind::kUsage, "schema.too_large",
                     "it takes more than a second to compile the schema; write a simpler one");
  }

 private:
  Duration end_;
};

}  // namespace rullama::constraint
