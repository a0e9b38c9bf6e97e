// Conversations between a program and a model: prompts as tokens, and the parser of what the model
// writes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace rullama {

// A conversation as tokens, ready for the model's turn.
struct EncodedChat {
  std::vector<TokenId> ids;
  bool opens_thought = false;  // the answer begins inside a thought that the prompt has opened
};

struct EncodeChatOptions {
  bool thinking = false;  // let the model think first
  // The last message is the assistant's and has no calls; the model continues its text within the
  // same turn.
  bool continue_last = false;
  bool add_generation_prompt = true;  // the prompt ends with the beginning of the model's turn
  size_t max_tokens = kAnyTokens;     // as in EncodeOptions
};

// Positions in the tokens of a conversation at which another one may part from it; ascending. Each
// depends on the tokens before it and, of a passage, on the rest of its turn.
struct PromptBorders {
  // After turns, and after the results of tools in them: where the next turn begins or the model
  // continues.
  std::vector<int64_t> turns = {};
  // Before the last passage of a turn, and before its last line: after its last empty line, and
  // after the last line break that follows this one. A question often stands there, after the
  // document that it is about or after the system's text. In the first turn, where the
  // template puts the system's text there, also after its first empty line, with or without such a
  // text.
  std::vector<int64_t> passages = {};
};

// The tokens around what the model thinks.
struct ThoughtMarkers {
  std::string_view begin;
  std::string_view end;
};

// The tokens of a conversation around a picture or a sound. The template writes `placeholder` where
// the medium stands; the model reads begin, the soft tokens and end in its place.
struct MediaMarkers {
  std::string_view begin;
  std::string_view placeholder;
  std::string_view end;
  // The text that the model reads on both sides of a medium. A template has it; where a prompt is
  // given as text, it is added before that becomes tokens.
  std::string_view before = {};
  std::string_view after = {};
};

// The assistant's turns that a model learns from a conversation: their text, thoughts, calls of
// tools and end markers.
enum class TrainedTurns : uint8_t { kNone, kAll, kLast };

// A conversation to learn from: tokens, and by token whether the model is to learn to write it.
struct EncodedExample {
  std::vector<TokenId> ids;
  std::vector<uint8_t> trained;
  // Tokens after which the model is to end the text, whatever follows them here: the last ones of
  // answers whose end no marker shows. A model without a chat template reads earlier answers
  // without an end.
  std::vector<size_t> ends = {};
};

// A call of a function that the model asks for.
struct ParsedCall {
  std::string name;
  nlohmann::json arguments;  // an object
};

struct OutputEvent {
  enum class Kind { kContent, kThinking, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;  // of content and thoughts
  ParsedCall call;   // of a tool call
  // Content that is a tool call which could not be understood, markers included.
  bool malformed_call = false;
};

struct OutputParserOptions {
  // Report thoughts. If off they are dropped, as are the empty ones that models write nevertheless.
  bool report_thinking = true;
  bool starts_in_thought = false;  // as EncodedChat::opens_thought
};

// Splits what the model writes into content, thoughts and tool calls, as it arrives.
//
// Feed it text with the markers visible (Detokenizer with show_control), or markers and other text
// apart, in pieces of any size: how
// the text is cut never changes what comes out. Time is linear in the text.
// Thread safety: one thread at a time.
class OutputParser {
 public:
  OutputParser() = default;
  OutputParser(const OutputParser&) = default;
  OutputParser& operator=(const OutputParser&) = default;
  virtual ~OutputParser() = default;

  // Returns the events that `text` completes. White space next to markers is dropped, so it may
  // come with a later call.
  virtual std::vector<OutputEvent> Feed(std::string_view text) = 0;
  // The same for text in which nothing is a marker, whatever it looks like.
  virtual std::vector<OutputEvent> FeedText(std::string_view text) = 0;
  // Whether the text of a control token means something where the output is now. It is not fed
  // otherwise: readers do not see it.
  [[nodiscard]] virtual bool Reads(std::string_view control) const = 0;
  // The end of the output: closes an open thought or call. Ready for another output.
  virtual std::vector<OutputEvent> Finish() = 0;
};

}  // namespace rullama
