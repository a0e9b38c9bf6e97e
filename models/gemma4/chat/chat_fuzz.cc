// The output parser on arbitrary bytes: cutting must not matter, and calls must be objects that can
// be printed. The template renderer on the same bytes taken as a request.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "models/common/chat/json.h"
#include "models/gemma4/chat/output_parser.h"
#include "models/gemma4/chat/template.h"

namespace {

using rullama::OutputEvent;
using rullama::OutputParserOptions;
using rullama::gemma4::OutputParser;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

// Everything but how text was divided over events: each byte of text carries its kind.
void Describe(const std::vector<OutputEvent>& events, std::string& description) {
  for (const OutputEvent& event : events) {
    if (event.kind == OutputEvent::Kind::kToolCall) {
      Require(event.call.arguments.is_object(), "arguments are an object");
      description += "\nF" + event.call.name + event.call.arguments.dump() + "\n";
      continue;
    }
    Require(!event.text.empty(), "no empty events");
    const char kind = event.malformed_call                         ? 'M'
                      : event.kind == OutputEvent::Kind::kThinking ? 'T'
                                                                   : 'C';
    for (const char byte : event.text) {
      description += kind;
      description += byte;
    }
  }
}

std::string Run(std::string_view input, size_t piece, const OutputParserOptions& options) {
  OutputParser parser(options);
  std::string description;
  for (size_t at = 0; at < input.size(); at += piece) {
    Describe(parser.Feed(input.substr(at, piece)), description);
  }
  Describe(parser.Finish(), description);
  return description;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const OutputParserOptions options{.report_thinking = (data[0] & 1) != 0,
                                    .starts_in_thought = (data[0] & 2) != 0};
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::string whole = Run(text, text.size() + 1, options);
  Require(Run(text, 1, options) == whole, "one byte at a time gives the same");
  Require(Run(text, 1 + data[0] / 4, options) == whole, "pieces give the same");

  // The renderer on the same bytes as a request: it answers, with a prompt or an error.
  if (const auto json = rullama::chat::ParseJson(text)) {
    const auto& messages = rullama::chat::Member(*json, "messages");
    const auto& tools = rullama::chat::Member(*json, "tools");
    const auto prompt =
        rullama::gemma4::RenderChat(messages, tools, {.enable_thinking = (data[0] & 1) != 0});
    if (prompt) Require(prompt->ToString().starts_with("<bos>"), "prompts begin with BOS");
  }
  return 0;
}
