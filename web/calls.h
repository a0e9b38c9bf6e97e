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
//   next        {generation}                                     an event; null after the last one
//   cancel      {generation}                                     null; it ends within a step
//   finish      {generation}                                     the whole answer; frees it
//
// `request` has the members of Request by their names: messages, tools, json_schema (as JSON
// values), prompt, thinking, max_tokens, stop, and the settings of the sampler. `media` is a list
// of {kind: "picture" or "sound", path}.
//
// Thread safety: one thread at a time. `open`, `embed` and `next` block.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/api/engine.h"

namespace rullama::web {

class Calls {
 public:
  // `log` receives the warnings and notes of engines.
  explicit Calls(std::function<void(LogLevel, std::string_view)> log) : log_(std::move(log)) {}

  // Never fails otherwise than by its answer.
  std::string Run(std::string_view call);

 private:
  struct Handlers;
  friend struct Handlers;

  std::function<void(LogLevel, std::string_view)> log_;
  std::map<int64_t, std::shared_ptr<Engine>> engines_;
  std::map<int64_t, Generation> generations_;
  int64_t next_handle_ = 1;
};

}  // namespace rullama::web
