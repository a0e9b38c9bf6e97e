// MCP servers: what they write, what files say of them, and programs that behave well and badly
// (fake_mcp.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "server/mcp/event_reader.h"
#include "server/mcp/message.h"
#include "server/mcp/server_list.h"
#include "server/mcp/tool_server.h"
#include "server/mcp/tool_servers.h"

namespace rullama::server::mcp {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

const char* NoVariable(const char* name) {
  return std::string_view(name) == "SECRET" ? "of the environment" : nullptr;
}

TEST(ToolServerList, HasTheFormOfEditors) {
  const auto list = ParseToolServers(
      R"({"mcpServers": {
            "files": {"command": "npx", "args": ["-y", "${env:SECRET}"], "env": {"A": "b"},
                      "cwd": "/tmp", "icon": "x"},
            "off": {"command": "x", "disabled": true},
            "web": {"type": "http", "url": "https://example.com/mcp",
                    "headers": {"Authorization": "Bearer ${SECRET}"}}}})",
      NoVariable);
  ASSERT_TRUE(list) << list.error().ToString();
  ASSERT_THAT(list->servers, SizeIs(2));
  const ToolServerEntry& files = list->servers[0];
  EXPECT_EQ(files.name, "files");
  EXPECT_THAT(files.arguments, ElementsAre("-y", "of the environment"));
  EXPECT_EQ(files.environment.at("A"), "b");
  EXPECT_EQ(files.folder, "/tmp");
  const ToolServerEntry& web = list->servers[1];
  EXPECT_FALSE(web.is_program());
  EXPECT_EQ(web.headers.at(0).value, "Bearer of the environment");
  EXPECT_THAT(list->ignored, ElementsAre("mcpServers.files.icon"));
}

TEST(ToolServerList, RefusesWhatIsNotOne) {
  for (const char* text : {
           "",
           "[]",
           "{}",
           R"({"mcpServers": []})",
           R"({"mcpServers": {"a": 1}})",
           R"({"mcpServers": {"a": {}}})",
           R"({"mcpServers": {"": {"command": "x"}}})",
           R"({"mcpServers": {"a": {"command": "x", "url": "http://x"}}})",
           R"({"mcpServers": {"a": {"command": 1}}})",
           R"({"mcpServers": {"a": {"command": "x", "args": "y"}}})",
           R"({"mcpServers": {"a": {"command": "x", "args": ["${MISSING}"]}}})",
           R"({"mcpServers": {"a": {"command": "x", "args": ["${input:key}"]}}})",
           R"({"mcpServers": {"a": {"command": "x", "args": ["${SECRET"]}}})",
           R"({"mcpServers": {"a": {"command": "x", "env": {"A=B": "c"}}}})",
           R"({"mcpServers": {"a": {"command": "x", "type": "http"}}})",
           R"({"mcpServers": {"a": {"url": "ftp://x"}}})",
           R"({"mcpServers": {"a": {"url": "http://x", "type": "sse"}}})",
           R"({"mcpServers": {"a": {"url": "http://x", "headers": {"A": "b\r\nC: d"}}}})",
       }) {
    const auto list = ParseToolServers(text, NoVariable);
    ASSERT_FALSE(list) << text;
    EXPECT_EQ(list.error().id, "mcp.servers") << text;
  }
}

TEST(McpMessage, IsOneOrAListOfThem) {
  const auto messages = ParseMessages(
      R"([{"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": "x", "method": "ping"},
          {"jsonrpc": "2.0", "method": "n"}, {"jsonrpc": "2.0", "id": 2, "error": {"code": -1, "message": "m"}}])");
  ASSERT_TRUE(messages) << messages.error().ToString();
  ASSERT_THAT(*messages, SizeIs(4));
  EXPECT_EQ((*messages)[0].kind, Message::Kind::kAnswer);
  EXPECT_EQ((*messages)[1].kind, Message::Kind::kRequest);
  EXPECT_EQ((*messages)[2].kind, Message::Kind::kNotification);
  EXPECT_EQ((*messages)[3].error->code, -1);
  const auto null = ParseMessages(R"({"jsonrpc": "2.0", "id": 1, "result": 2, "error": null})");
  ASSERT_TRUE(null) << null.error().ToString();
  EXPECT_EQ((*null)[0].result, 2);
  EXPECT_FALSE((*null)[0].error);
  for (const char* text :
       {"", "1", "{}", R"({"jsonrpc": "1.0", "id": 1, "result": 1})",
        R"({"jsonrpc": "2.0", "id": 1})", R"({"jsonrpc": "2.0", "id": 1, "error": null})",
        R"({"jsonrpc": "2.0", "id": 1, "result": 1, "error": {}})",
        R"({"jsonrpc": "2.0", "result": 1})", R"({"jsonrpc": "2.0", "method": 1})"}) {
    EXPECT_FALSE(ParseMessages(text)) << text;
  }
}

TEST(ToolPage, SaysWhyAToolIsLeftOut) {
  const auto page = ReadToolPage({{"tools",
                                   {{{"name", ""}, {"inputSchema", json::object()}},
                                    {{"name", std::string(257, 'x')}, {"inputSchema", {}}},
                                    {{"name", "a"}}}}});
  ASSERT_TRUE(page) << page.error().ToString();
  EXPECT_THAT(page->refused,
              ElementsAre(HasSubstr("has no name"), HasSubstr("has a name of more than 256 bytes"),
                          HasSubstr("has no schema")));
}

TEST(ToolOutcome, IsTextForAModel) {
  const auto outcome = ReadToolOutcome(json::parse(
      R"({"isError": true, "content": [{"type": "text", "text": "a"},
          {"type": "resource", "resource": {"uri": "u", "text": "b"}},
          {"type": "image", "mimeType": "image/png", "data": ""}]})"));
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->failed);
  EXPECT_EQ(outcome->text, "a\nb\n[a part of type image/png, which cannot be shown here]");
  const std::string large(kMaxResultBytes, 'x');
  const json result = {{"content", {{{"type", "text"}, {"text", large + "\u00e9more"}}}}};
  EXPECT_THAT(ReadToolOutcome(result)->text,
              HasSubstr("[6 more bytes of this result are left out]"));
}

TEST(EventReader, TakesEventsInAnyPieces) {
  const std::string stream =
      "\r\ndata: a\r\ndata:b\r\n\r\nevent: x\n: comment\ndata\n\ndata: c\n\n";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    EventReader reader(100);
    std::vector<std::string> all;
    for (size_t at = 0; at < stream.size(); at += piece) {
      const auto events = reader.Take(std::string_view(stream).substr(at, piece));
      ASSERT_TRUE(events);
      all.insert(all.end(), events->begin(), events->end());
    }
    EXPECT_THAT(all, ElementsAre("a\nb", "c")) << piece;
  }
  EventReader reader(100);
  EXPECT_EQ(reader.Take("data: " + std::string(200, 'x')).error().id, "mcp.too_large");
}

TEST(NameForModel, IsOneThatRequestsTake) {
  EXPECT_EQ(NameForModel("files", "read"), "files__read");
  EXPECT_NE(NameForModel("files", "a.b"), NameForModel("files", "a/b"));
  const std::string name = NameForModel(std::string(64, 's'), std::string(200, 't'));
  EXPECT_THAT(name, SizeIs(64));
  EXPECT_NE(NameForModel("a", "b__c"), NameForModel("a__b", "c"));
  EXPECT_NE(NameForModel("a_", "b"), NameForModel("a", "_b"));
  // A tool cannot take the name that another one has with its hash.
  const std::string with_hash = NameForModel("a.b", "c");
  ASSERT_THAT(with_hash, StartsWith("a_b__c_"));
  EXPECT_NE(NameForModel("a_b", with_hash.substr(5)), with_hash);
}

// An MCP server that is fake_mcp.py.
class FakeServer {
 public:
  explicit FakeServer(const std::string& mode, const std::string& file = "",
                      std::chrono::milliseconds to_call = std::chrono::seconds(30))
      : server_({.name = "fake",
                 .command = RULLAMA_PYTHON3,
                 .arguments = {"-B", RULLAMA_SOURCE_DIR "/tests/server/fake_mcp.py", mode, file}},
                {.version = "1",
                 .send = {},
                 .log = [this](std::string_view line) { Log(line); },
                 .times = {.to_start = kLimit,
                           .to_list = kLimit,
                           .to_call = to_call,
                           .to_rest = std::chrono::seconds(0)}}) {}

  ToolServer* operator->() { return &server_; }
  ToolServerState List() { return server_.List(Clock::now() + kLimit); }
  std::vector<std::string> ToolNames() {
    std::vector<std::string> names;
    for (const Tool& tool : List().tools) names.push_back(tool.name);
    return names;
  }
  Result<ToolOutcome> Call(const std::string& tool, const json& arguments = json::object()) {
    return server_.Call(tool, arguments, [] { return false; });
  }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

 private:
  static constexpr std::chrono::seconds kLimit{30};  // against hanging
  void Log(std::string_view line) {
    const std::lock_guard lock(mutex_);
    log_ += std::string(line) + "\n";
  }
  std::mutex mutex_;
  std::string log_;
  ToolServer server_;
};

TEST(ToolServer, ListsPagesAndCallsTools) {
  FakeServer server("good");
  EXPECT_THAT(server.ToolNames(),
              ElementsAre("echo", "slow", "grow", "die", "asked", "cancelled", "refuse"));
  EXPECT_THAT(server.log(), HasSubstr("the tool 'bad' has arguments that are no object"));
  EXPECT_EQ(server.Call("echo", {{"text", "\u00e9"}})->text, "\u00e9");
  EXPECT_THAT(server.log(), HasSubstr("writes a line that is no message: a greeting"));
  // The server's ping is answered, and what this client does not have is refused.
  EXPECT_EQ(server.Call("asked")->text, "[{}, -32601]");
  const auto refused = server.Call("refuse");
  EXPECT_EQ(refused.error().ToString(), "server 'fake': no such thing (error -32602) [mcp.tool]");
}

TEST(ToolServer, HearsThatTheListHasChanged) {
  FakeServer server("good");
  EXPECT_THAT(server.ToolNames(), SizeIs(7));
  EXPECT_EQ(server.Call("grow")->text, "[a part of type image/png, which cannot be shown here]");
  EXPECT_THAT(server.ToolNames(), SizeIs(8));
}

TEST(ToolServer, IsToldOfCallsThatNobodyWants) {
  FakeServer server("good");
  EXPECT_THAT(server.ToolNames(), SizeIs(7));
  const auto start = Clock::now();
  const auto ended = server->Call("slow", json::object(), [&] {
    return Clock::now() - start > std::chrono::milliseconds(100);
  });
  EXPECT_EQ(ended.error().id, "mcp.cancelled");
  EXPECT_THAT(json::parse(server.Call("cancelled")->text), SizeIs(1));
}

TEST(ToolServer, EndsCallsThatTakeTooLong) {
  FakeServer server("good", "", std::chrono::milliseconds(300));
  EXPECT_THAT(server.ToolNames(), SizeIs(7));
  EXPECT_EQ(server.Call("slow").error().id, "mcp.timeout");
}

TEST(ToolServer, GivesAnErrorWithoutAnIdToItsCall) {
  FakeServer server("good");
  EXPECT_THAT(server.ToolNames(), SizeIs(7));
  const auto refused = server.Call("slow", {{"unread", true}});
  EXPECT_EQ(refused.error().ToString(), "server 'fake': cannot be read (error -32700) [mcp.tool]");
}

TEST(ToolServer, IsStartedAgainOnceItHasDied) {
  FakeServer server("good");
  EXPECT_THAT(server.ToolNames(), SizeIs(7));
  const auto died = server.Call("die");
  EXPECT_EQ(died.error().id, "mcp.closed");
  EXPECT_THAT(died.error().message, HasSubstr("ended with exit code 3: it dies now"));
  EXPECT_EQ(server.Call("echo", {{"text", "again"}})->text, "again");
}

TEST(ToolServer, SaysWhyAServerIsNotThere) {
  const std::pair<const char*, const char*> cases[] = {
      {"garbage", "100 lines that are no messages"},
      {"huge", "a line of more than 4194304 bytes"},
      {"version", "speaks version \"1999-01-01\" of MCP"},
      {"endless", "does not end"},
  };
  for (const auto& [mode, text] : cases) {
    FakeServer server(mode);
    const ToolServerState state = server.List();
    EXPECT_FALSE(state.ready) << mode;
    EXPECT_THAT(state.failure, HasSubstr(text)) << mode;
    EXPECT_THAT(server.Call("echo").error().message, HasSubstr(text)) << mode;
  }
}

TEST(ToolServer, NamesAProgramThatIsMissing) {
  ToolServer server({.name = "x", .command = "/no/such/program"},
                    {.version = "1", .send = {}, .log = [](std::string_view) {}});
  const ToolServerState state = server.List(Clock::now() + std::chrono::seconds(30));
  EXPECT_THAT(state.failure, HasSubstr("'/no/such/program' cannot be started: No such file"));
}

TEST(ToolServer, DoesNotWaitForOneThatSaysNothing) {
  const auto start = Clock::now();
  FakeServer server("silent");
  EXPECT_FALSE(server->List(Clock::now() + std::chrono::milliseconds(50)).ready);
  const auto ended = server->Call("echo", json::object(), [] { return true; });
  EXPECT_EQ(ended.error().id, "mcp.cancelled");
  server->Stop();
  server->End();
  EXPECT_LT(SecondsSince(start), 20);
}

TEST(ToolServer, EndsOneThatHasLeftItsGroup) {
  const auto start = Clock::now();
  {
    FakeServer server("apart");
    EXPECT_THAT(server.ToolNames(), SizeIs(7));
  }
  EXPECT_LT(SecondsSince(start), 20);
}

TEST(ToolServer, LeavesNoProcess) {
  const std::string file = ::testing::TempDir() + "/stubborn_pid." + std::to_string(::getpid());
  {
    FakeServer server("stubborn", file);
    EXPECT_THAT(server.ToolNames(), SizeIs(7));
  }
  pid_t pid = 0;
  std::ifstream(file) >> pid;
  ASSERT_GT(pid, 0);
  // Whoever adopts the process takes a moment to forget it.
  const auto start = Clock::now();
  const auto is_alive = [pid] {
    std::string state;
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    std::getline(status, state);
    return !state.empty() && state.find(") Z ") == std::string::npos;
  };
  while (is_alive() && SecondsSince(start) < 30)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(is_alive());
}

TEST(ToolServers, OffersToolsToTheBearerOfTheToken) {
  ToolServers servers(
      {{.name = "a b",
        .command = RULLAMA_PYTHON3,
        .arguments = {"-B", RULLAMA_SOURCE_DIR "/tests/server/fake_mcp.py", "good"}},
       {.name = "missing", .command = "/no/such/program"}},
      {.version = "1", .send = {}, .log = [](std::string_view) {}}, 3, "token");
  EXPECT_TRUE(servers.Admits("token"));
  for (const char* wrong : {"", "toke", "tokem", "tokens"}) EXPECT_FALSE(servers.Admits(wrong));
  const Offer offer = servers.List(std::chrono::seconds(30));
  ASSERT_THAT(offer.tools, SizeIs(3));
  EXPECT_EQ(offer.left_out, 4u);
  EXPECT_THAT(offer.failures, SizeIs(1));
  EXPECT_EQ(offer.tools[0].tool.name, "echo");
  EXPECT_TRUE(servers.Has(offer.tools[0].name));
  const auto echo = servers.Call(offer.tools[0].name, {{"text", "x"}}, [] { return false; });
  EXPECT_EQ(echo->text, "x");
  EXPECT_EQ(servers.Call("other", json::object(), [] { return false; }).error().id, "mcp.tool");
}

}  // namespace
}  // namespace rullama::server::mcp
