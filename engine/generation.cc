#include <algorithm>
#include <utility>

#include "engine/generation_impl.h"

namespace rullama {

Generation::Impl::Impl(std::shared_ptr<const void> owner_of_tokenizer,
                       std::shared_ptr<AnswerChannel> answers, const Tokenizer& tokenizer,
                       AnswerTextOptions options, bool logprobs)
    : owner(std::move(owner_of_tokenizer)),
      channel(std::move(answers)),
      tokenizer_(tokenizer),
      text_(tokenizer, std::move(options)),
      logprobs_(logprobs) {}

Generation::Impl::~Impl() { channel->Cancel(); }

Result<std::optional<Event>> Generation::Impl::Next() {
  while (events_.empty() && !over_) RL_RETURN_IF_ERROR(Advance());
  if (events_.empty()) return std::nullopt;
  std::optional<Event> event = std::move(events_.front());
  events_.pop_front();
  Record(*event);
  return event;
}

Status Generation::Impl::Advance() {
  ChannelItem item = channel->Take();
  if (auto* error = std::get_if<Error>(&item)) {
    over_ = true;
    return tl::unexpected(std::move(*error));
  }
  if (const auto* progress = std::get_if<ReadProgress>(&item)) Take(*progress);
  if (auto* drawn = std::get_if<DrawnToken>(&item)) return Take(std::move(*drawn));
  if (const auto* canvas = std::get_if<DrawnCanvas>(&item)) return Take(*canvas);
  if (auto* draft = std::get_if<Draft>(&item)) return Take(std::move(*draft));
  if (const auto* scores = std::get_if<PromptScores>(&item)) completion.prompt_logprobs = **scores;
  if (const auto* end = std::get_if<RequestEnd>(&item)) Take(*end);
  return OkStatus();
}

void Generation::Impl::Take(const ReadProgress& progress) {
  events_.push_back({.kind = Event::Kind::kProgress,
                     .done = progress.done,
                     .total = progress.total,
                     .reused = progress.reused});
}

// Tokens that were drawn after a stop text, before the engine heard of it, are not part of the
// answer.
Status Generation::Impl::Take(DrawnToken drawn) {
  if (text_.stopped() != nullptr) return OkStatus();
  completion.ids.push_back(drawn.token);
  std::optional<LogprobStep> logprobs;
  if (logprobs_) logprobs = completion.logprobs.emplace_back(std::move(drawn.logprobs));
  Status status = text_.Push(drawn.token, std::move(logprobs), events_);
  if (!status) over_ = true;
  if (!status || text_.stopped() != nullptr) channel->Cancel();
  return status;
}

// The text of a canvas is one event, as it is there at once.
Status Generation::Impl::Take(const DrawnCanvas& canvas) {
  std::deque<Event> earlier = std::exchange(events_, {});
  for (const int32_t token : canvas.tokens) RL_RETURN_IF_ERROR(Take(DrawnToken{.token = token}));
  for (Event& event : std::exchange(events_, std::move(earlier))) {
    const bool is_text = event.kind == Event::Kind::kText || event.kind == Event::Kind::kThinking;
    if (is_text && !events_.empty() && events_.back().kind == event.kind) {
      events_.back().text += event.text;
    } else {
      events_.push_back(std::move(event));
    }
  }
  return OkStatus();
}

Status Generation::Impl::Take(Draft draft) {
  // After its first end token a canvas has no text.
  const std::vector<int32_t>& ids = draft.canvas.ids;
  const auto end = std::ranges::find_first_of(ids, tokenizer_.end_of_generation_ids());
  RL_ASSIGN_OR_RETURN(std::string text, tokenizer_.Decode({ids.begin(), end}));
  events_.push_back({.kind = Event::Kind::kDraft,
                     .text = std::move(text),
                     .done = draft.step,
                     .total = draft.max_steps,
                     .draft = std::move(draft.canvas)});
  return OkStatus();
}

void Generation::Impl::Take(const RequestEnd& end) {
  over_ = true;
  text_.Finish(events_);
  completion.reason = end.reason;
  if (const std::string* stop = text_.stopped()) {
    completion.reason = StopReason::kStopped;
    completion.stop_text = *stop;
  }
  completion.end_logprobs = end.end;
  completion.thought_tokens = text_.thought_tokens();
  static_cast<AnswerCosts&>(completion) = end.costs;
}

void Generation::Impl::Record(const Event& event) {
  if (event.kind == Event::Kind::kText) completion.text += event.text;
  if (event.kind == Event::Kind::kThinking) completion.thoughts += event.text;
  if (event.kind == Event::Kind::kToolCall) completion.tool_calls.push_back(event.call);
}

Generation::Generation(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Generation::Generation(Generation&&) noexcept = default;
Generation& Generation::operator=(Generation&& other) noexcept {
  Generation moved(std::move(other));
  std::swap(impl_, moved.impl_);  // `moved` ends the request that was here
  return *this;
}
// In a child of fork() the copy stays: to free it would wait for threads that are not there.
Generation::~Generation() {
  if (impl_ && !impl_->home.here()) static_cast<void>(impl_.release());
}

Result<std::optional<Event>> Generation::Next() {
  RL_RETURN_IF_ERROR(impl_->home.Check());
  return impl_->Next();
}

Result<Completion> Generation::Wait(const std::function<bool(const Event&)>& on_event) {
  for (;;) {
    RL_ASSIGN_OR_RETURN(const std::optional<Event> event, Next());
    if (!event) return impl_->completion;
    if (on_event && !on_event(*event)) Cancel();
  }
}

const Completion& Generation::completion() const { return impl_->completion; }

void Generation::Cancel() {
  if (impl_->home.here()) impl_->channel->Cancel();
}

}  // namespace rullama
