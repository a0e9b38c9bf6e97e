// Reads arbitrary bytes as an MCP server's output or as a file that names servers: the first byte
// says which.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/utf8.h"
#include "server/mcp/event_reader.h"
#include "server/mcp/message.h"
#include "server/mcp/server_list.h"

namespace {

using rullama::server::mcp::EventReader;
using rullama::server::mcp::kMaxResultBytes;
using rullama::server::mcp::kMethodNotFound;
using rullama::server::mcp::Message;
using rullama::server::mcp::ParseMessages;
using rullama::server::mcp::ParseToolServers;
using rullama::server::mcp::ReadToolOutcome;
using rullama::server::mcp::ReadToolPage;
using rullama::server::mcp::RefusalText;
using rullama::server::mcp::Tool;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

void ReadMessages(std::string_view text) {
  const auto messages = ParseMessages(text);
  if (!messages) return;
  for (const Message& message : *messages) {
    if (message.kind != Message::Kind::kAnswer) {
      Require(!message.method.empty(), "a request has a method");
      const auto refusal = ParseMessages(RefusalText(message.id, {kMethodNotFound, "no"}));
      Require(refusal.has_value(), "an answer to it can be read");
      continue;
    }
    if (const auto page = ReadToolPage(message.result)) {
      for (const Tool& tool : page->tools) Require(tool.schema.is_object(), "a tool has a schema");
    }
    if (const auto outcome = ReadToolOutcome(message.result)) {
      Require(!rullama::FindInvalidUtf8(outcome->text), "a result is text");
      Require(outcome->text.size() < kMaxResultBytes + 100, "a result has a limit");
    }
  }
}

// The same events come of the bytes together and one by one.
void ReadEvents(std::string_view bytes) {
  constexpr size_t kMaxBytes = 64;
  EventReader whole(kMaxBytes);
  const auto together = whole.Take(bytes);
  EventReader pieces(kMaxBytes);
  std::vector<std::string> events;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto some = pieces.Take(bytes.substr(i, 1));
    if (!some) return Require(!together, "an event is too large in pieces as well");
    events.insert(events.end(), some->begin(), some->end());
  }
  Require(together && *together == events, "pieces do not change events");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'e':
      ReadEvents(rest);
      break;
    case 's':
      static_cast<void>(ParseToolServers(rest, [](const char*) -> const char* { return "value"; }));
      break;
    default:
      ReadMessages(rest);
  }
  return 0;
}
