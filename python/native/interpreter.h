// The GIL for work of the library, and the end of the interpreter.
//
// At its end Python ends daemon threads where they take the GIL, by unwinding their stack: through
// frames of C++ that ends the process. So from then on threads of the library wait for ever
// instead, with the GIL out of their reach, as Python 3.14 has it; running answers are cancelled
// before.
//
// Thread safety: all of it.
#pragma once

#include <Python.h>

#include <functional>
#include <thread>

namespace rullama::python {

// Releases the GIL for its lifetime, on a thread that holds it.
class GilReleased {
 public:
  GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;
  ~GilReleased();

 private:
  PyThreadState* state_;
};

// Holds the GIL for its lifetime, on any thread; one that holds it already keeps it.
class GilHeld {
 public:
  GilHeld();
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;
  ~GilHeld();

 private:
  bool nested_;    // the thread holds the GIL already
  bool released_;  // it is within a GilReleased
  PyGILState_STATE state_;
};

// Calls `cancel`, which does not block, when the interpreter ends before this object, or at once if
// it ends already and another thread ends it.
class CancelledAtExit {
 public:
  explicit CancelledAtExit(std::function<void()> cancel);
  CancelledAtExit(const CancelledAtExit&) = delete;
  CancelledAtExit& operator=(const CancelledAtExit&) = delete;
  ~CancelledAtExit();

 private:
  friend void OnInterpreterExit();
  std::function<void()> cancel_;
};

// The thread, not Python's own, does a part of the work of another one, which waits for it. So it
// may take the GIL while that other thread ends the interpreter, in a function of Python's atexit.
class WorkingFor {
 public:
  explicit WorkingFor(std::thread::id other);
  WorkingFor(const WorkingFor&) = delete;
  WorkingFor& operator=(const WorkingFor&) = delete;
  ~WorkingFor();
};

// Whether OnInterpreterExit() has been called.
bool InterpreterEnds();

// For Python's atexit. Waits for a moment until the threads of the library have come to rest.
void OnInterpreterExit();

}  // namespace rullama::python
