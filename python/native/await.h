// Waits for work of the library so that Python stays usable meanwhile.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "python/native/interpreter.h"

namespace rullama::python {

// The period at which the main thread asks Python for signals while it waits.
inline constexpr std::chrono::milliseconds kSignalPeriod{50};

// Returns what `work` returns. The GIL is released while `work` runs, so it must not touch Python
// objects. `on_main_thread`: the caller is Python's main thread, the only one that handles signals.
// `work` then runs on a thread of its own; if a signal handler raises, as that of Ctrl-C does,
// `cancel` is called, `work` is waited for, and the exception passes on.
template <typename Work, typename Cancel>
auto Await(bool on_main_thread, Work work, Cancel cancel) -> decltype(work()) {
  if (!on_main_thread) {
    const GilReleased released;
    return work();
  }
  std::future<decltype(work())> result;
  bool interrupted = false;
  {
    const GilReleased released;
    result = std::async(std::launch::async,
                        [caller = std::this_thread::get_id(), work = std::move(work)]() mutable {
                          const WorkingFor working(caller);
                          return work();
                        });
    while (!interrupted && result.wait_for(kSignalPeriod) != std::future_status::ready) {
      const GilHeld held;
      interrupted = PyErr_CheckSignals() != 0;
    }
    if (interrupted) {
      cancel();
      result.wait();
    }
  }
  if (interrupted) nanobind::raise_python_error();
  return result.get();
}

}  // namespace rullama::python
