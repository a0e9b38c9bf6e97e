#include "python/native/interpreter.h"

#include <nanobind/nanobind.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <utility>

namespace rullama::python {
namespace {

// A step of a slow machine may take longer; its thread then rests a little later.
constexpr std::chrono::seconds kMostWaiting{5};

// There is one interpreter in a process that modules of nanobind work in.
struct Interpreter {
  std::mutex mutex;
  std::condition_variable changed;
  bool ends = false;
  std::thread::id ending;  // the thread that ends it, which may still take the GIL
  int released = 0;        // threads within a GilReleased
  int taking = 0;          // threads that wait for the GIL
  std::set<CancelledAtExit*> cancelled;

  [[nodiscard]] bool EndsForThisThread() const;
};

// Whether this thread has released the GIL and not taken it back.
thread_local bool is_released = false;
// The thread that this one works for, if any.
thread_local std::thread::id works_for;

bool Interpreter::EndsForThisThread() const {
  return ends && ending != std::this_thread::get_id() && ending != works_for;
}

// Never destroyed: threads rest in it until the process has ended.
Interpreter& TheInterpreter() {
  static Interpreter* const kInterpreter = [] {
    static auto* const kMade = new Interpreter;
    // A child of a fork has none of the threads that are counted but its own, and a mutex that
    // nobody may unlock.
    ::pthread_atfork(nullptr, nullptr, [] { new (kMade) Interpreter; });
    return kMade;
  }();
  return *kInterpreter;
}

// Waits for ever if the interpreter ends; else notes that this thread is about to take the GIL.
void BeforeTaking(Interpreter& python) {
  std::unique_lock lock(python.mutex);
  if (!python.EndsForThisThread()) {
    ++python.taking;
    return;
  }
  if (is_released) --python.released;
  python.changed.notify_all();
  lock.unlock();
  for (;;) ::pause();
}

void AfterTaking(Interpreter& python) {
  const std::scoped_lock lock(python.mutex);
  --python.taking;
  python.changed.notify_all();
}

}  // namespace

GilReleased::GilReleased() {
  Interpreter& python = TheInterpreter();
  {
    const std::scoped_lock lock(python.mutex);
    ++python.released;
  }
  is_released = true;
  state_ = PyEval_SaveThread();
}

GilReleased::~GilReleased() {
  Interpreter& python = TheInterpreter();
  BeforeTaking(python);
  PyEval_RestoreThread(state_);
  is_released = false;
  AfterTaking(python);
  const std::scoped_lock lock(python.mutex);
  --python.released;
  python.changed.notify_all();
}

// A thread that holds the GIL must not rest: the one that ends the interpreter waits for it.
GilHeld::GilHeld()
    : nested_(PyGILState_GetThisThreadState() != nullptr && !is_released), released_(is_released) {
  Interpreter& python = TheInterpreter();
  if (!nested_) BeforeTaking(python);
  state_ = PyGILState_Ensure();
  is_released = false;
  if (!nested_) AfterTaking(python);
}

GilHeld::~GilHeld() {
  is_released = released_;
  PyGILState_Release(state_);
}

CancelledAtExit::CancelledAtExit(std::function<void()> cancel) : cancel_(std::move(cancel)) {
  Interpreter& python = TheInterpreter();
  const std::scoped_lock lock(python.mutex);
  python.cancelled.insert(this);
  if (python.EndsForThisThread()) cancel_();
}

CancelledAtExit::~CancelledAtExit() {
  Interpreter& python = TheInterpreter();
  const std::scoped_lock lock(python.mutex);
  python.cancelled.erase(this);
}

WorkingFor::WorkingFor(std::thread::id other) { works_for = other; }
WorkingFor::~WorkingFor() { works_for = {}; }

bool InterpreterEnds() {
  Interpreter& python = TheInterpreter();
  const std::scoped_lock lock(python.mutex);
  return python.ends;
}

void OnInterpreterExit() {
  Interpreter& python = TheInterpreter();
  {
    const std::scoped_lock lock(python.mutex);
    python.ends = true;
    python.ending = std::this_thread::get_id();
    for (const CancelledAtExit* one : python.cancelled) one->cancel_();
  }
  PyThreadState* state = PyEval_SaveThread();
  {
    std::unique_lock lock(python.mutex);
    python.changed.wait_for(lock, kMostWaiting,
                            [&python] { return python.released <= 0 && python.taking <= 0; });
  }
  PyEval_RestoreThread(state);
  // Objects that other threads hold are never freed, on purpose.
  if (nanobind::cast<int>(nanobind::module_::import_("threading").attr("active_count")()) > 1) {
    nanobind::set_leak_warnings(false);
  }
}

}  // namespace rullama::python
