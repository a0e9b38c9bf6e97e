// The parser of output with markers: finds them, however the text is cut, and hands the rest on
// byte by byte. Families say which markers count where the output is, and what they mean. Thread
// safety: one thread at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/common/chat.h"

namespace rullama::chat {

class MarkedOutputParser : public OutputParser {
 public:
  std::vector<OutputEvent> Feed(std::string_view text) final;
  std::vector<OutputEvent> FeedText(std::string_view text) final;
  [[nodiscard]] bool Reads(std::string_view control) const final;

 protected:
  // `markers` begin with '<' and outlive it.
  explicit MarkedOutputParser(std::span<const std::string_view> markers) : markers_(markers) {}

  // Whether a marker means something where the output is; otherwise it is ordinary text.
  [[nodiscard]] virtual bool IsActive(std::string_view marker) const = 0;
  // Whether the output is inside a call. All text counts there: what does not belong in a call
  // makes it malformed.
  [[nodiscard]] virtual bool IsInCall() const = 0;
  virtual void Marker(std::string_view marker) = 0;
  virtual void OrdinaryByte(char byte) = 0;

  // Makes ordinary text of the beginning of a marker that does not come.
  void FlushPartial();
  // Not yet handed out.
  [[nodiscard]] std::vector<OutputEvent>& events() { return events_; }
  std::vector<OutputEvent> TakeEvents() { return std::exchange(events_, {}); }

 private:
  void Byte(char byte);

  std::span<const std::string_view> markers_;
  std::vector<OutputEvent> events_;
  std::string partial_;  // may become a marker
};

}  // namespace rullama::chat
