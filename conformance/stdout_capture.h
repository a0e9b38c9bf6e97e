// Captures the standard output of this process from its construction on. A plugin must not write
// there: that stream belongs to the program, whose answers other programs read.
//
// Thread safety: one object in a process, used by one thread; any thread may write to the stream.
#pragma once

#include <string>

#include "core/base/status.h"

namespace rullama::conformance {

class StdoutCapture {
 public:
  // Error: conformance.capture (kIo).
  static Result<StdoutCapture> Begin();

  // Returns the output written since the last call; of a long output only the beginning.
  std::string Take();

 private:
  explicit StdoutCapture(int file) : file_(file) {}
  int file_;  // open as long as the process
};

}  // namespace rullama::conformance
