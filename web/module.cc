// The entry of the WebAssembly module: calls.h for JavaScript.
//
// Calls run on a thread of their own, one after the other: the thread of JavaScript, on which files
// are read and workers start, must not wait for them. To cancel an answer waits for no call.
#include <emscripten/emscripten.h>

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "web/calls.h"

// Calls Module.onAnswer(id, text) on the thread of JavaScript and frees the text, which is null if
// there was no memory for it (answer.js).
extern "C" void rullama_answer(int id, char* text);

namespace rullama::web {
namespace {

void Log(LogLevel level, std::string_view text) {
  const char* const name = level == LogLevel::kNote ? "note" : "warning";
  std::fprintf(stderr, "rullama: %s: %.*s\n", name, static_cast<int>(text.size()), text.data());
}

class CallThread {
 public:
  void Post(int id, std::string call) {
    {
      const std::lock_guard lock(mutex_);
      if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
      posted_.emplace_back(id, std::move(call));
    }
    added_.notify_one();
  }

  void Cancel(int64_t generation) { calls_.Cancel(generation); }

 private:
  void Loop() {
    for (;;) {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [this] { return !posted_.empty(); });
      const auto [id, call] = std::move(posted_.front());
      posted_.pop_front();
      lock.unlock();
      rullama_answer(id, AnswerTo(call));
    }
  }

  // Null if there is no memory for it.
  char* AnswerTo(const std::string& call) {
    try {
      return strdup(calls_.Run(call).c_str());
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  Calls calls_{Log};
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::pair<int, std::string>> posted_;
  std::thread thread_;
};

// Lives until the worker ends, as its thread does.
CallThread& Thread() {
  static auto* const kThread = new CallThread;
  return *kThread;
}

}  // namespace
}  // namespace rullama::web

// Module.onAnswer(id, answer) is called when the call has ended.
extern "C" EMSCRIPTEN_KEEPALIVE void rullama_post(int id, const char* call) {
  rullama::web::Thread().Post(id, call);
}

// `generation`: the handle of an answer, which JavaScript has as a number.
extern "C" EMSCRIPTEN_KEEPALIVE void rullama_cancel(double generation) {
  rullama::web::Thread().Cancel(static_cast<int64_t>(generation));
}
