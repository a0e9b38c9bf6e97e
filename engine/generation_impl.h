// The inside of Generation: reads the channel of a job and makes events and the completion.
//
// Ownership: keeps what `owner` points to alive. Thread safety: that of Generation.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "engine/answer_channel.h"
#include "engine/answer_text.h"
#include "engine/api/engine.h"
#include "engine/home_process.h"

namespace rullama {

struct RULLAMA_LOCAL Generation::Impl {
 public:
  Impl(std::shared_ptr<const void> owner, std::shared_ptr<AnswerChannel> channel,
       const Tokenizer& tokenizer, AnswerTextOptions options, bool logprobs);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<std::optional<Event>> Next();

  HomeProcess home;
  std::shared_ptr<const void> owner;
  std::shared_ptr<AnswerChannel> channel;
  Completion completion;

 private:
  // Takes one item of the channel and appends the events that it gives.
  Status Advance();
  void Take(const ReadProgress& progress);
  Status Take(DrawnToken drawn);
  Status Take(const DrawnCanvas& canvas);
  Status Take(Draft draft);
  void Take(const RequestEnd& end);
  void Record(const Event& event);

  const Tokenizer& tokenizer_;
  AnswerText text_;
  bool logprobs_;
  bool over_ = false;
  std::deque<Event> events_;  // not yet returned
};

}  // namespace rullama
