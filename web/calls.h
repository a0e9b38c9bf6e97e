// The engine as calls that take and return JSON: what a page or a worker needs to get from a model
// to text. Compiled for WebAssembly; web/rullama.mjs is the interface for JavaScript.
//
// A call is {"call": NAME, ...}; its answer is {"value": ...}, or {"error": {"id", "kind",
// "message"}} with the ids of docs/errors.md:
//
//   open        {model, settings: {"context.slots": "1", ...}}   {engine, info}
//   close       {engine}                                         null; ends its requests
//   tokenize    {engine, text}                                   a list of ids
//   detokenize  {engine, ids}                                    a text
//   embed       {engine, text, task, dimensions}                 a list of numbers
//   submit      {engine, request}                                {generation, prompt_tokens}
//   next        {generation}                                     the events since the last call;
//   none
//                                                                while there are none yet, null
//                                                                after the last one
//   cancel      {generation}                                     null; it ends within a step
//   finish      {generation}                                     the whole answer; ends and frees
//   it
//
// `request` has the members of Request by their names: messages, tools, json_schema (as JSON
// values), prompt, thinking, max_tokens, stop, and the settings of the sampler. `media` is a list
// of {kind: "picture" or "sound", path}. Other members than these are errors.
//
// Thread safety: one thread at a time; Cancel() from any thread. `open` and `embed` block, `finish`
// blocks for one step at most. A thread of its own reads each answer, so that one whose events
// nobody asks for does not hold up the others.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "engine/api/engine.h"

namespace rullama::web {

class Calls {
 public:
  // `log` receives the warnings and notes of engines.
  explicit Calls(std::function<void(LogLevel, std::string_view)> log);

  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls();

  // Reports every failure in its answer. Throws std::bad_alloc if there is no memory for that.
  std::string Run(std::string_view call);
  // The call `cancel`, while another one runs. Nothing for an answer that has been finished.
  void Cancel(int64_t generation);

 private:
  class Reader;  // of one answer
  struct Handlers;
  friend struct Handlers;

  std::function<void(LogLevel, std::string_view)> log_;
  std::map<int64_t, std::shared_ptr<Engine>> engines_;
  std::mutex mutex_;  // guards the map, which Run() alone changes
  std::map<int64_t, std::unique_ptr<Reader>> generations_;
  int64_t next_handle_ = 1;
};

}  // namespace rullama::web
