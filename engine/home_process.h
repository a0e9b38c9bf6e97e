// The process that an object with threads belongs to. A child of fork() has a copy of the object
// without its threads: waiting for one would never end.
//
// Value type; thread-safe.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include "core/base/status.h"

namespace rullama {

class HomeProcess {
 public:
  [[nodiscard]] bool here() const { return ::getpid() == pid_; }

  // Error engine.forked (kUsage) in any other process.
  [[nodiscard]] Status Check() const {
    if (here()) return OkStatus();
    return MakeError(ErrorKind::kUsage, "engine.forked",
                     "the model was opened by process {} and is used in process {}, which has none "
                     "of its threads after a fork; open the model in each process (in Python: "
                     "multiprocessing with the start method 'spawn')",
                     pid_, ::getpid());
  }

 private:
  pid_t pid_ = ::getpid();
};

}  // namespace rullama
