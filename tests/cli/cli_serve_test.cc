// rullama serve as a process: its keys, its log of prompts, its signals.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/trace_rules.h"
#include "tests/server/client.h"

namespace rullama::cli_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ServeTest : public ::testing::Test {
 protected:
  ServeTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ServeTest() override { std::filesystem::remove_all(folder_); }

  // Returns the rest of its output.
  static std::string ReadRest(RunningProgram& program) {
    std::string rest;
    for (std::string more = program.ReadSome(); !more.empty(); more = program.ReadSome()) {
      rest += more;
    }
    return rest;
  }

  // The status of a question for the tokens of "The prince" with a key.
  static int StatusWith(uint16_t port, const std::string& key) {
    server::Client client(port);
    client.Send(server::Post("/tokenize", R"({"content": "The prince"})",
                             "Authorization: Bearer " + key + "\r\n"));
    return server::StatusOf(client.ReadAll());
  }

  const std::filesystem::path folder_ =
      ::testing::TempDir() + "serve_" + std::to_string(::getpid());
};

TEST_F(ServeTest, ReadsKeysAgainLogsPromptsOnRequestAndEnds) {
  const std::filesystem::path keys = folder_ / "keys";
  const std::filesystem::path prompts = folder_ / "prompts";
  const std::filesystem::path config = folder_ / "config.yaml";
  const std::filesystem::path trace = folder_ / "trace.json";
  std::ofstream(keys) << "ann:sk-12345678\n";
  std::ofstream(config) << "context: {slots: 3}\nbackend: {name: none}\n";
  RunningProgram program(
      {"serve", "-m", TinyModel(), "--port", "0", "--threads", "1", "--api-key-file", keys.string(),
       "--log-prompts", prompts.string(), "--trace", trace.string()},
      {.join_streams = true,
       .environment = {"RULLAMA_API_KEY=sk-environment", "RULLAMA_CONFIG=" + config.string(),
                       "RULLAMA_BACKEND=cpu"}});
  const std::string ready = program.ReadUntil("listening on http://127.0.0.1:");
  EXPECT_THAT(ready, HasSubstr("prompts"));
  const std::string rest = program.ReadUntil("tokens)");
  EXPECT_THAT(rest, HasSubstr("on cpu, 3 slots"));
  const auto port = static_cast<uint16_t>(std::stoi(rest));
  EXPECT_EQ(StatusWith(port, "sk-12345678"), 200);
  EXPECT_EQ(StatusWith(port, "sk-environment"), 200);
  EXPECT_EQ(StatusWith(port, "sk-abcdefgh"), 401);

  std::ofstream(keys) << "bob:sk-abcdefgh\n";
  program.Signal(SIGHUP);
  program.ReadUntil("read the keys again");
  EXPECT_EQ(StatusWith(port, "sk-abcdefgh"), 200);
  EXPECT_EQ(StatusWith(port, "sk-12345678"), 401);
  std::ofstream(keys) << "short\n";
  program.Signal(SIGHUP);
  program.ReadUntil("[server.api_key]");
  EXPECT_EQ(StatusWith(port, "sk-abcdefgh"), 200) << "wrong keys change nothing";
  std::ofstream(keys, std::ios::trunc).close();
  program.Signal(SIGHUP);
  EXPECT_THAT(program.ReadUntil("has no key"), HasSubstr("NO KEY WAS REVOKED"));
  std::filesystem::remove(keys);
  program.Signal(SIGHUP);
  EXPECT_THAT(program.ReadUntil("[io.open]"), HasSubstr("NO KEY WAS REVOKED"));
  EXPECT_EQ(StatusWith(port, "sk-abcdefgh"), 200) << "none was revoked";

  server::Client client(port);
  client.Send(server::Post("/v1/embeddings", R"({"input": "The prince"})",
                           "Authorization: Bearer sk-abcdefgh\r\n"));
  EXPECT_EQ(server::StatusOf(client.ReadAll()), 200);
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 0);
  struct stat status {};
  ASSERT_EQ(::stat(prompts.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  std::ifstream log(prompts);
  std::string line;
  int lines = 0;
  for (; std::getline(log, line); ++lines) {
    EXPECT_THAT(nlohmann::json::parse(line).at("body").get<std::string>(), HasSubstr("The prince"));
  }
  EXPECT_EQ(lines, 6) << "of those that had a key";
  std::ifstream stream(trace);
  const auto written = nlohmann::json::parse(stream);
  EXPECT_EQ(TraceFault(written), "");
  const auto& events = written["traceEvents"];
  const auto embedding =
      std::ranges::find_if(events, [](const auto& event) { return event["name"] == "request 1"; });
  ASSERT_NE(embedding, events.end()) << "the trace has the request that ran";
  EXPECT_GT((*embedding)["args"]["prompt_tokens"], 1);
}

// The body of an answer, of a request as it is sent.
std::string Ask(uint16_t port, const std::string& request) {
  server::Client client(port);
  client.Send(request);
  return server::BodyOf(client.ReadAll());
}

std::string Get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
}

constexpr int kClosedAtOnce = 0;

int StatusOfHealth(uint16_t port) {
  try {
    server::Client client(port);
    client.Send(Get("/health"));
    return server::StatusOf(client.ReadAll());
  } catch (const std::system_error&) {
    return kClosedAtOnce;
  }
}

// A model is loaded when a request names it, in the place of another one.
TEST_F(ServeTest, AnswersWithSeveralModels) {
  const std::filesystem::path config = folder_ / "config.yaml";
  std::ofstream(config) << "backend: {options: {threads: 1}}\nserver:\n  port: 0\n  models:\n"
                        << "    - " << TinyModel() << "\n    - path: " << TinyMoeModel()
                        << "\n      name: experts:latest\n      keep_alive: -1\n"
                        << "      settings: {context.capacity: 64, context.slots: 2}\n";
  RunningProgram program({"serve", "--config", config.string()}, {.join_streams = true});
  program.ReadUntil("listening on http://127.0.0.1:");
  const std::string rest = program.ReadUntil("tokens)");
  EXPECT_THAT(rest, HasSubstr("tiny-e2b-Q4_K_M and 1 other on cpu"));
  const auto port = static_cast<uint16_t>(std::stoi(rest));
  const auto loaded = [port] {
    return nlohmann::json::parse(Ask(port, Get("/api/ps"))).at("models");
  };
  EXPECT_EQ(loaded().at(0).at("name"), "tiny-e2b-Q4_K_M");
  const auto tags = nlohmann::json::parse(Ask(port, Get("/api/tags"))).at("models");
  ASSERT_EQ(tags.size(), 2U);
  EXPECT_EQ(tags.at(1).at("details").at("family"), "gemma4") << "known before it is loaded";
  const std::string prompt = R"("prompt": "The prince", "max_tokens": 2})";
  EXPECT_THAT(Ask(port, server::Post("/v1/completions", R"({"model": "experts", )" + prompt)),
              HasSubstr(R"("model":"experts:latest")"));
  ASSERT_EQ(loaded().size(), 1U) << "one at a time";
  EXPECT_EQ(loaded().at(0).at("context_length"), 64);
  EXPECT_EQ(loaded().at(0).at("expires_at"), "2318-01-01T00:00:00Z");
  EXPECT_THAT(Ask(port, server::Post("/v1/completions", R"({"model": "other", )" + prompt)),
              HasSubstr("'tiny-e2b-Q4_K_M', 'experts:latest'"));
  EXPECT_THAT(Ask(port, server::Post("/v1/completions", "{" + prompt)),
              HasSubstr("missing_required_parameter"));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 0);
}

TEST_F(ServeTest, RefusesWrongListsOfModels) {
  const struct {
    std::vector<std::string> arguments;
    const char* error;
    int exit_code;
  } rows[] = {
      {{"-m", TinyModel(), "-m", TinyModel()}, "[config.conflict]", 2},
      {{"-m", TinyModel(), "-m", TinyMoeModel(), "--lora", "x"}, "[config.conflict]", 2},
      {{"-m", TinyModel(), "--lora", "a/x", "--lora", "b/x"}, "[config.conflict]", 2},
      {{"-m", TinyModel(), "-m", "/nowhere.gguf"}, "'/nowhere.gguf'", 6},
      {{"-m", TinyModel(), "--max-loaded-models", "0"}, "[config.range]", 2},
      {{"-m", TinyModel(), "--keep-alive", "soon"}, "[config.type]", 2},
  };
  for (const auto& row : rows) {
    std::vector<std::string> arguments = row.arguments;
    arguments.insert(arguments.begin(), "serve");
    const RunResult result = RunRullama(arguments);
    EXPECT_EQ(result.exit_code, row.exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(row.error));
  }
}

// More clients than the system has open files for, none of which goes: a new one is told so or
// closed at once, until those that are there have waited for a second and give it a place.
TEST_F(ServeTest, WarnsOfWhatTheSystemLetsItDo) {
  const std::filesystem::path keys = folder_ / "keys";
  std::ofstream(keys) << "sk-12345678\n";
  std::filesystem::permissions(keys, std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  RunningProgram program({"serve", "-m", TinyModel(), "--port", "0", "--threads", "1",
                          "--api-key-file", keys.string()},
                         {.join_streams = true, .limits = "-n 100"});
  const std::string said = program.ReadUntil("listening on http://127.0.0.1:");
  EXPECT_THAT(said, HasSubstr("everybody on this machine may write to the file of keys"));
  EXPECT_THAT(said, HasSubstr("fewer than the 2048 of server.max_connections"));
  const auto port = static_cast<uint16_t>(std::stoi(program.ReadUntil("tokens)")));
  std::vector<std::unique_ptr<server::Client>> idle;
  for (int i = 0; i < 120; ++i) idle.push_back(std::make_unique<server::Client>(port));
  int status = StatusOfHealth(port);
  for (int i = 0; i < 600 && status != 200; ++i) {
    EXPECT_THAT(status, AnyOf(503, kClosedAtOnce));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    status = StatusOfHealth(port);
  }
  EXPECT_EQ(status, 200);
  idle.clear();
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 0);
}

// Of `max_queue` places a client with a key leaves half to others, rounded up; without keys all are
// one client.
TEST_F(ServeTest, AKeyMayTakeHalfOfTheQueue) {
  const std::filesystem::path keys = folder_ / "keys";
  std::ofstream(keys) << "sk-12345678\n";
  std::filesystem::permissions(keys, std::filesystem::perms::owner_read);
  struct Case {
    const char* config;
    bool has_keys;
    const char* queue;
    const char* queue_of_key;
  };
  for (const Case& c : {Case{"{}\n", false, "1024,", "1024,"}, Case{"{}\n", true, "1024,", "512,"},
                        Case{"server: {max_queue: 1}\n", true, "1,", "1,"}}) {
    const std::filesystem::path config = folder_ / "config.yaml";
    std::ofstream(config) << c.config;
    std::vector<std::string> arguments = {"serve", "-m",        TinyModel(), "--port",
                                          "0",     "--threads", "1"};
    if (c.has_keys) arguments.insert(arguments.end(), {"--api-key-file", keys.string()});
    RunningProgram program(
        arguments, {.join_streams = true, .environment = {"RULLAMA_CONFIG=" + config.string()}});
    program.ReadUntil("listening on http://127.0.0.1:");
    server::Client client(static_cast<uint16_t>(std::stoi(program.ReadUntil("tokens)"))));
    client.Send(
        "GET /props HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-12345678\r\n"
        "Connection: close\r\n\r\n");
    EXPECT_THAT(client.ReadAll(),
                AllOf(HasSubstr(std::string("\"max_queue\":") + c.queue),
                      HasSubstr(std::string("\"max_queue_per_key\":") + c.queue_of_key)));
    program.Signal(SIGTERM);
    EXPECT_EQ(program.Wait(), 0);
  }
}

// The answer that is written takes far longer than the rest of the test.
TEST_F(ServeTest, BeyondAFullQueueRequestsAreRefused) {
  const std::filesystem::path config = folder_ / "config.yaml";
  std::ofstream(config) << "server: {max_queue: 2, metrics: true}\n";
  RunningProgram program(
      {"serve", "-m", TinyModel(), "--port", "0", "--threads", "1", "--slots", "1"},
      {.join_streams = true, .environment = {"RULLAMA_CONFIG=" + config.string()}});
  program.ReadUntil("listening on http://127.0.0.1:");
  const auto port = static_cast<uint16_t>(std::stoi(program.ReadUntil("tokens)")));
  const std::string request =
      server::Post("/v1/completions",
                   R"({"prompt": "It", "stream": true, "ignore_eos": true, "max_tokens": 2000})");
  server::Client writing(port);
  writing.Send(request);
  EXPECT_THAT(writing.ReadUntil("data: "), HasSubstr("200 OK"));
  server::Client first(port);
  first.Send(request);
  server::Client second(port);
  second.Send(request);
  std::string metrics;
  for (int i = 0; i < 6000 && metrics.find("rullama_queue_length 2\n") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    metrics = Ask(port, Get("/metrics"));
  }
  server::Client third(port);
  third.Send(request);
  EXPECT_THAT(third.ReadAll(), AllOf(HasSubstr("HTTP/1.1 429"), HasSubstr("\r\nRetry-After: "),
                                     HasSubstr("queue_full")));
  program.Signal(SIGKILL);
  EXPECT_EQ(program.Wait(), 128 + SIGKILL);
}

TEST_F(ServeTest, RefusesAFileWithoutKeys) {
  const std::filesystem::path keys = folder_ / "keys";
  std::ofstream(keys) << "# none yet\n";
  const RunResult result =
      RunRullama({"serve", "-m", TinyModel(), "--api-key-file", keys.string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("has no key, expected at least one"));
}

// Clients see a closed connection, a server that is started again takes the same port, and the log
// of prompts has those that were not answered.
TEST_F(ServeTest, IsStartedAgainAfterItWasKilled) {
  const std::filesystem::path prompts = folder_ / "prompts";
  std::string port_text = "0";
  for (int i = 0; i < 2; ++i) {
    RunningProgram program({"serve", "-m", TinyModel(), "--threads", "1", "--port", port_text,
                            "--log-prompts", prompts.string()},
                           {.join_streams = true});
    program.ReadUntil("listening on http://127.0.0.1:");
    const auto port = static_cast<uint16_t>(std::stoi(program.ReadUntil("tokens)")));
    port_text = std::to_string(port);
    server::Client client(port);
    client.Send(server::Post(
        "/v1/completions",
        R"({"prompt": "It", "stream": true, "ignore_eos": true, "max_tokens": 2000})"));
    EXPECT_THAT(client.ReadUntil("data: "), HasSubstr("200 OK"));
    program.Signal(SIGKILL);
    EXPECT_THAT(client.ReadAll(), Not(HasSubstr("[DONE]")));
    EXPECT_EQ(program.Wait(), 128 + SIGKILL);
  }
  std::ifstream log(prompts);
  const std::string text((std::istreambuf_iterator<char>(log)), {});
  EXPECT_EQ(std::ranges::count(text, '\n'), 2) << text;
}

// A lost device is opened again once; one that is lost again at once ends the server.
TEST_F(ServeTest, EndsWhenTheDeviceStaysLost) {
  RunningProgram program({"serve", "-m", TinyModel(), "--port", "0", "--plugin",
                          RULLAMA_FAULTY_PLUGIN, "--backend", "faulty"},
                         {.join_streams = true, .environment = {"RULLAMA_FAULTY_LOST=1"}});
  program.ReadUntil("listening on http://127.0.0.1:");
  const auto port = static_cast<uint16_t>(std::stoi(program.ReadUntil("tokens)")));
  const std::string request = server::Post("/v1/completions", R"({"prompt": "The prince"})");
  for (int i = 0; i < 2; ++i) {
    server::Client client(port);
    client.Send(request);
    const std::string answer = client.ReadAll();
    EXPECT_EQ(server::StatusOf(answer), 503) << answer;
    EXPECT_THAT(answer, HasSubstr(R"("code":"device_lost")"));
  }
  EXPECT_EQ(program.Wait(), 3);
  EXPECT_THAT(ReadRest(program), HasSubstr("cannot be opened again"));
}

}  // namespace
}  // namespace rullama::cli_test
