// The endpoints on a tiny trained model, over HTTP.
#include "server/api.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/loading/engine_config.h"
#include "server/http/http_server.h"
#include "server/web_folder.h"
#include "tests/server/client.h"

namespace rullama::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kModel = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";
constexpr const char* kDiffusion = RULLAMA_SOURCE_DIR "/tests/data/tiny-diffusion-Q4_K_M.gguf";
constexpr const char* kPlugins = RULLAMA_BINARY_DIR "/lib/rullama";
constexpr const char* kKey = "Authorization: Bearer sk-12345678\r\n";
constexpr const char* kChat = "/v1/chat/completions";

// One engine and one server for all tests; each asks with a connection of its own.
class ApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ApiKeys keys;
    ASSERT_TRUE(keys.AddLines("ann:sk-12345678", "keys"));
    std::vector<ServedModel> models;
    models.push_back({.id = "tiny", .time = 1, .load = Open});
    web_folder_ = testing::TempDir() + "/api_web";
    std::filesystem::create_directories(web_folder_ + "/folder.mjs");
    std::ofstream(web_folder_ + "/index.html") << "<p>the page</p>";
    std::ofstream(web_folder_ + "/module.wasm") << std::string_view("\0asm", 4);
    std::ofstream(web_folder_ + "/notes.txt") << "not of the page";
    api_ = new Api(std::move(models), Must(Open()),
                   {.version = "1",
                    .web = true,
                    .web_folder = std::make_shared<WebFolder>(Must(WebFolder::Read(web_folder_)))},
                   keys);
    server_ =
        Must(HttpServer::Start({}, [](Exchange& exchange) { api_->Handle(exchange); })).release();
  }
  static void TearDownTestSuite() {
    delete server_;
    delete api_;
    std::filesystem::remove_all(web_folder_);
  }

  static Result<std::shared_ptr<Engine>> Open() {
    return Engine::Open({.model = kModel,
                         .backend = "cpu",
                         .settings = {{"context.slots", "4"},
                                      {"context.capacity", "256"},
                                      {"backend.options.threads", "1"}},
                         .plugin_paths = {kPlugins}});
  }

  static std::string Ask(std::string_view path, const std::string& body) {
    return server::Ask(server_->port(), path, body, kKey);
  }
  static std::string Get(const std::string& path, const std::string& fields = kKey) {
    Client client(server_->port());
    client.Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + fields +
                "\r\n");
    return client.ReadAll();
  }
  // A chat of one message; `members` follow it.
  static std::string Chat(const std::string& text, const std::string& members) {
    return R"({"messages": [{"role": "user", "content": ")" + text +
           R"("}], "max_tokens": 16, "seed": 5, )" + members + "}";
  }
  static json Answer(std::string_view path, const std::string& body) {
    return AskForJson(server_->port(), path, body, kKey);
  }

  // -1: there is none of this name.
  static double Metric(const std::string& name) {
    const std::string text = Get("/metrics");
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  static Api* api_;
  static HttpServer* server_;
  inline static std::string web_folder_;
};
Api* ApiTest::api_ = nullptr;
HttpServer* ApiTest::server_ = nullptr;

// The JSON of the events of a stream; the mark of the end as the text "[DONE]".
std::vector<json> Events(const std::string& answer) {
  std::vector<json> events;
  for (size_t at = answer.find("data: "); at != std::string::npos;
       at = answer.find("data: ", at + 1)) {
    const std::string text = answer.substr(at + 6, answer.find("\n\n", at) - at - 6);
    events.push_back(text == "[DONE]" ? json(text) : json::parse(text));
  }
  return events;
}

TEST_F(ApiTest, AChatIsAnswered) {
  const json answer = Answer(kChat, Chat("Hello", R"("temperature": 0.8)"));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_FALSE(answer["choices"][0]["message"]["content"].get<std::string>().empty());
  const json& usage = answer["usage"];
  EXPECT_EQ(usage["total_tokens"].get<int>(),
            usage["prompt_tokens"].get<int>() + usage["completion_tokens"].get<int>());
  EXPECT_EQ(answer["timings"]["seed"], 5);
}

TEST_F(ApiTest, AStreamIsTheAnswerInParts) {
  for (const char* path : {kChat, "/v1/completions"}) {
    const std::string body =
        path == kChat ? Chat("Hello", R"("temperature": 0.8)") : R"({"prompt": "Once", "seed": 5})";
    const json whole = Answer(path, body);
    const std::string streamed =
        Ask(path, body.substr(0, body.size() - 1) +
                      R"(, "stream": true, "stream_options": {"include_usage": true}})");
    EXPECT_THAT(streamed, HasSubstr("text/event-stream"));
    const std::vector<json> events = Events(streamed);
    ASSERT_GE(events.size(), 4U) << streamed;
    std::string text;
    for (size_t i = 0; i + 2 < events.size(); ++i) {
      EXPECT_TRUE(events[i]["usage"].is_null());
      EXPECT_EQ(events[i]["id"], events[0]["id"]);
      const json& choice = events[i]["choices"][0];
      text += path == kChat ? choice["delta"].value("content", "") : choice.value("text", "");
    }
    const json& choice = whole["choices"][0];
    EXPECT_EQ(path == kChat ? choice["message"]["content"] : choice["text"], text);
    EXPECT_EQ(events[events.size() - 3]["choices"][0]["finish_reason"], choice["finish_reason"]);
    EXPECT_EQ(events[events.size() - 2]["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
    EXPECT_EQ(events.back(), "[DONE]");
  }
}

TEST_F(ApiTest, NeighboursChangeNothing) {
  std::vector<std::string> alone;
  std::vector<std::string> bodies;
  for (int i = 0; i < 8; ++i) {
    bodies.push_back(Chat("Message " + std::string(static_cast<size_t>(i) * 5, 'x'),
                          R"("temperature": 0.)" + std::to_string(i + 1)));
    alone.push_back(Answer(kChat, bodies.back())["choices"].dump());
  }
  std::vector<std::string> together(bodies.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < bodies.size(); ++i) {
    clients.emplace_back([&, i] { together[i] = Answer(kChat, bodies[i])["choices"].dump(); });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(together, alone);
}

TEST_F(ApiTest, WhatIsAskedWronglyIsRefused) {
  struct Row {
    const char* path;
    std::string body;
    int status;
    const char* code;
  };
  const Row table[] = {
      {kChat, "{", 400, "json.syntax"},
      {kChat, "{}", 400, "missing_required_parameter"},
      {kChat, Chat("Hi", R"("model": "other")"), 404, "model_not_found"},
      {kChat, Chat("Hi", R"("n": 5)"), 400, "invalid_value"},
      {kChat, R"({"messages": [{"role": "nobody", "content": "Hi"}]})", 400, "invalid_value"},
      {kChat, Chat(std::string(5000, 'x'), R"("temperature": 0)"), 400, "context_length_exceeded"},
      {"/v1/nothing", "{}", 404, "route_not_found"},
      {"/v1/responses", "{}", 400, "missing_required_parameter"},
      {"/v1/files", "{}", 501, "not_implemented"},
      {"/v1/models", "{}", 405, "method_not_allowed"},
      {"/v1/embeddings", R"({"input": ""})", 400, "invalid_value"},
      {"/v1/embeddings", R"({"input": []})", 400, "invalid_value"},
      {"/v1/embeddings", R"({"input": "a", "dimensions": 100000})", 400, "invalid_value"},
      {"/tokenize", "{}", 400, "missing_required_parameter"},
      {"/detokenize", R"({"tokens": [1.5]})", 400, "invalid_type"},
      {"/detokenize", R"({"tokens": [2000000000]})", 400, "invalid_value"},
  };
  for (const Row& row : table) {
    const std::string answer = Ask(row.path, row.body);
    EXPECT_EQ(StatusOf(answer), row.status) << row.path << " " << answer;
    const json error = json::parse(BodyOf(answer))["error"];
    EXPECT_EQ(error["code"], row.code) << row.path;
    for (const char* member : {"message", "type", "param"}) EXPECT_TRUE(error.contains(member));
  }
}

TEST_F(ApiTest, TheRouteIsLookedForBeforeTheTypeOfTheBody) {
  const struct {
    std::string path;
    std::string type;
    int status;
  } table[] = {{kChat, "text/xml", 415},
               {kChat, "text/plain; charset=utf-8", 200},
               {kChat, "Application/JSON", 200},
               {kChat, "application/octet-stream", 200},
               {"/v1/completions", "multipart/form-data; boundary=x", 415},
               {"/v1/audio/transcriptions", "multipart/form-data; boundary=x", 501},
               {"/api/blobs/sha256:0", "application/octet-stream", 501}};
  for (const auto& row : table) {
    const std::string body = Chat("Hi", R"("temperature": 0)");
    Client client(server_->port());
    client.Send("POST " + row.path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                kKey + "Content-Type: " + row.type +
                "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    const std::string answer = client.ReadAll();
    EXPECT_EQ(StatusOf(answer), row.status) << row.path << " " << row.type << ": " << answer;
  }
}

// A page of another origin sends the simple types without asking the server first.
TEST_F(ApiTest, PagesOfOtherOriginsAreRefusedWhateverTheTypeOfTheBody) {
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded",
                           "application/octet-stream", "application/json"}) {
    for (const char* origin : {"https://evil.example", "null"}) {
      const std::string body = Chat("Hi", R"("temperature": 0)");
      Client client(server_->port());
      client.Send(std::string("POST ") + kChat +
                  " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + kKey +
                  "Origin: " + origin + "\r\nContent-Type: " + type +
                  "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
      EXPECT_EQ(StatusOf(client.ReadAll()), 403) << type << " " << origin;
    }
  }
}

TEST_F(ApiTest, UnknownMembersAreNamed) {
  EXPECT_THAT(Ask(kChat, Chat("Hi", R"("odd": 1, "user": "me")")),
              HasSubstr("X-Rullama-Ignored: odd\r\n"));
  EXPECT_THAT(Ask(kChat, Chat("Hi", R"("user": "me")")), Not(HasSubstr("Ignored")));
}

TEST_F(ApiTest, ModelsAndHealthAreTold) {
  EXPECT_EQ(BodyOf(Get("/health")), R"({"status":"ok"})");
  EXPECT_EQ(json::parse(BodyOf(Get("/v1/models")))["data"][0]["id"], "tiny");
  EXPECT_EQ(json::parse(BodyOf(Get("/v1/models/tiny:latest")))["created"], 1);
  EXPECT_EQ(StatusOf(Get("/v1/models/other")), 404);
}

TEST_F(ApiTest, PathsMayLackTheirVersionAndEndInASlash) {
  for (const std::string path : {"/v1/models", "/v1/models/", "/models", "/models/"}) {
    EXPECT_EQ(json::parse(BodyOf(Get(path)))["data"][0]["id"], "tiny") << path;
  }
  for (const std::string path : {"/v1/models/tiny/", "/models/tiny", "/models/tiny/"}) {
    EXPECT_EQ(json::parse(BodyOf(Get(path)))["created"], 1) << path;
  }
  EXPECT_EQ(json::parse(BodyOf(Get("/api/tags/")))["models"][0]["name"], "tiny");
  for (const char* path : {"/v1/chat/completions/", "/chat/completions", "/chat/completions/"}) {
    EXPECT_EQ(Answer(path, Chat("Hi", R"("temperature": 0)"))["object"], "chat.completion") << path;
  }
  EXPECT_EQ(StatusOf(Get("/chat/completions")), 405);
  EXPECT_EQ(StatusOf(Get("/images/generations")), 501);
  EXPECT_EQ(StatusOf(Get("/v1/v1/models")), 404);
  EXPECT_EQ(StatusOf(Get("/v1/api/tags")), 404);
  EXPECT_EQ(StatusOf(Get("/v1/models//")), 404);
}

TEST_F(ApiTest, EmbeddingsHaveLengthOneInBothForms) {
  const json floats = Answer("/v1/embeddings", R"({"input": ["one", "two"], "dimensions": 8})");
  ASSERT_EQ(floats["data"].size(), 2U);
  double squares = 0;
  for (const json& value : floats["data"][1]["embedding"]) {
    squares += value.get<double>() * value.get<double>();
  }
  EXPECT_EQ(floats["data"][1]["embedding"].size(), 8U);
  EXPECT_NEAR(squares, 1, 1e-6);
  const json text =
      Answer("/v1/embeddings", R"({"input": "two", "dimensions": 8, "encoding_format": "base64"})");
  // 32 bytes: 44 characters, of which the last one pads.
  const auto encoded = text["data"][0]["embedding"].get<std::string>();
  EXPECT_EQ(encoded.size(), 44U);
  EXPECT_EQ(encoded.find('='), 43U);
}

// As many as LangChain and OpenAI's clients send at once.
TEST_F(ApiTest, ManyTextsAreEmbedded) {
  const json answer =
      Answer("/v1/embeddings",
             json{{"input", std::vector<std::string>(2048, "a")}, {"dimensions", 1}}.dump());
  EXPECT_EQ(answer["data"].size(), 2048U);
  EXPECT_EQ(answer["data"][2047]["index"], 2047);
  const std::string refused =
      Ask("/v1/embeddings", json{{"input", std::vector<std::string>(2049, "a")}}.dump());
  EXPECT_EQ(StatusOf(refused), 400);
  EXPECT_THAT(refused, HasSubstr("2048"));
}

// More prompts than slots, and than a client's share of the queue: they take the place of one.
TEST_F(ApiTest, ManyPromptsAreContinuedInTheirOrder) {
  json body = {{"prompt", json::array()}, {"max_tokens", 2}, {"seed", 3}, {"echo", true}};
  for (int i = 0; i < 100; ++i) body["prompt"].push_back(std::to_string(i) + " is");
  const json answer = Answer("/v1/completions", body.dump());
  ASSERT_EQ(answer["choices"].size(), 100U);
  for (size_t i = 0; i < 100; ++i) {
    const json& choice = answer["choices"][i];
    EXPECT_EQ(choice["index"], i);
    EXPECT_THAT(choice["text"].get<std::string>(),
                ::testing::StartsWith(std::to_string(i) + " is"));
  }
  body["stream"] = true;
  std::vector<std::string> texts(100);
  for (const json& event : Events(Ask("/v1/completions", body.dump()))) {
    if (event.is_string()) continue;
    for (const json& choice : event["choices"]) {
      texts.at(choice["index"]) += choice["text"].get<std::string>();
    }
  }
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(texts[i], answer["choices"][i]["text"]) << i;
}

// A stream whose tool takes nothing ends with no text of arguments.
TEST_F(ApiTest, PastCallsMayHaveBlankArguments) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "now"}}])";
  for (const char* arguments : {R"("")", R"(" \n")", R"("{}")", "null", "{}"}) {
    const std::string call =
        R"({"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function",
            "function": {"name": "now", "arguments": )" +
        std::string(arguments) + "}}]}";
    const std::string messages = R"("messages": [{"role": "user", "content": "Hi"}, )" + call +
                                 R"(, {"role": "tool", "tool_call_id": "c", "content": "12:00"}])";
    const std::string chat = Ask(kChat, "{" + messages + ", " + tools + R"(, "max_tokens": 1})");
    EXPECT_EQ(StatusOf(chat), 200) << arguments << chat;
    const std::string ollama =
        Ask("/api/chat", R"({"model": "tiny", "stream": false, "options": {"num_predict": 1}, )" +
                             messages + ", " + tools + "}");
    EXPECT_EQ(StatusOf(ollama), 200) << arguments << ollama;
    if (*arguments != '"') continue;  // here arguments are a text
    const std::string response =
        Ask("/v1/responses", R"({"max_output_tokens": 1, "input": [{"role": "user", "content":
            "Hi"}, {"type": "function_call", "call_id": "c", "name": "now", "arguments": )" +
                                 std::string(arguments) +
                                 R"(}, {"type": "function_call_output", "call_id": "c",
            "output": "12:00"}]})");
    EXPECT_EQ(StatusOf(response), 200) << arguments << response;
  }
}

TEST_F(ApiTest, PastCallsMayLackTheirIds) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "now"}}])";
  for (const std::string id : {"", R"("id": null, )"}) {
    const std::string answer =
        Ask(kChat, R"({"max_tokens": 1, )" + tools + R"(, "messages": [{"role": "user",
            "content": "Hi"}, {"role": "assistant", "tool_calls": [{)" +
                       id + R"("type": "function",
            "function": {"name": "now", "arguments": "{}"}}]}, {"role": "tool", "content": "12"}]})");
    EXPECT_EQ(StatusOf(answer), 200) << id << answer;
  }
}

TEST_F(ApiTest, TokensGoThereAndBack) {
  const json tokens = Answer("/tokenize", R"({"content": "Once upon a time"})");
  const json text = Answer("/detokenize", tokens.dump());
  EXPECT_EQ(text["content"], "Once upon a time");
}

TEST_F(ApiTest, SeveralAnswersHaveTheirOwnRandomNumbers) {
  const json one = Answer(kChat, Chat("Hello", R"("temperature": 1.5)"));
  const json two = Answer(kChat, Chat("Hello", R"("temperature": 1.5, "n": 2)"));
  ASSERT_EQ(two["choices"].size(), 2U);
  EXPECT_EQ(two["choices"][0]["message"], one["choices"][0]["message"]);
  EXPECT_NE(two["choices"][1]["message"], one["choices"][0]["message"]);
  EXPECT_EQ(two["choices"][1]["index"], 1);
  EXPECT_EQ(two["usage"]["prompt_tokens"], one["usage"]["prompt_tokens"]);
}

TEST_F(ApiTest, LogprobsSpellTheText) {
  const json answer = Answer(kChat, Chat("Hello", R"("logprobs": true, "top_logprobs": 2)"));
  std::string text;
  for (const json& token : answer["choices"][0]["logprobs"]["content"]) {
    for (const json& byte : token["bytes"]) text += static_cast<char>(byte.get<int>());
    EXPECT_EQ(token["top_logprobs"].size(), 2U);
  }
  const auto content = answer["choices"][0]["message"]["content"].get<std::string>();
  EXPECT_EQ(text.substr(0, content.size()), content);
  const json legacy = Answer("/v1/completions", R"({"prompt": "Once", "logprobs": 1, "seed": 1})");
  const json& probabilities = legacy["choices"][0]["logprobs"];
  EXPECT_EQ(probabilities["tokens"].size(), probabilities["text_offset"].size());
}

TEST_F(ApiTest, SeveralPromptsAreAnsweredInOrder) {
  const json one = Answer("/v1/completions", R"({"prompt": "Once", "seed": 1, "echo": true})");
  const json two =
      Answer("/v1/completions", R"({"prompt": ["Once", "The"], "seed": 1, "echo": true})");
  EXPECT_EQ(two["choices"][0]["text"], one["choices"][0]["text"]);
  EXPECT_THAT(two["choices"][1]["text"].get<std::string>(), ::testing::StartsWith("The"));
}

TEST_F(ApiTest, OutputHasTheFormThatIsAskedFor) {
  const std::string schema =
      R"({"type": "object", "properties": {"color": {"enum": ["red", "blue"]}},
          "required": ["color"], "additionalProperties": false})";
  const json answer =
      Answer(kChat, Chat("Hello", R"("response_format": {"type": "json_schema", "json_schema":
                                     {"name": "x", "schema": )" +
                                      schema + "}}"));
  const auto text = answer["choices"][0]["message"]["content"].get<std::string>();
  EXPECT_TRUE(json::parse(text)["color"].is_string()) << text;
  const json call =
      Answer(kChat, Chat("Hello", R"("tools": [{"type": "function", "function": {"name": "paint",
                              "parameters": )" +
                                      schema + R"(}}], "tool_choice": "required",
                              "parallel_tool_calls": false, "max_completion_tokens": 40)"));
  EXPECT_EQ(call["choices"][0]["finish_reason"], "tool_calls");
  const json& called = call["choices"][0]["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(called["name"], "paint");
  EXPECT_TRUE(json::parse(called["arguments"].get<std::string>())["color"].is_string());
  const std::string refused =
      Ask(kChat, Chat("Hi", R"("response_format": {"type": "json_schema", "json_schema":
                               {"name": "x", "schema": {"not": {}}}})"));
  EXPECT_EQ(StatusOf(refused), 400);
  EXPECT_THAT(refused, HasSubstr("schema.unsupported"));
}

TEST_F(ApiTest, OllamaSaysTheSameWords) {
  const json chat = Answer(kChat, Chat("Hello", R"("temperature": 0)"));
  const std::string body = R"({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}],
                               "options": {"temperature": 0, "num_predict": 16})";
  const json whole = Answer("/api/chat", body + R"(, "stream": false})");
  EXPECT_EQ(whole["message"]["content"], chat["choices"][0]["message"]["content"]);
  EXPECT_EQ(whole["eval_count"], chat["usage"]["completion_tokens"]);
  std::string lines = Ask("/api/chat", body + "}");
  EXPECT_THAT(lines, HasSubstr("application/x-ndjson"));
  EXPECT_THAT(lines, HasSubstr(R"("done":true)"));
  const json generated =
      Answer("/api/generate", R"({"model": "tiny", "prompt": "Hello", "stream": false,
                                  "options": {"temperature": 0, "num_predict": 16}})");
  EXPECT_EQ(generated["response"], whole["message"]["content"]);
  const json error = json::parse(BodyOf(Ask("/api/chat", R"({"model": "other"})")));
  EXPECT_TRUE(error["error"].is_string());
}

TEST_F(ApiTest, AModelThatWasUnloadedComesBack) {
  const json gone = Answer("/api/chat", R"({"model": "tiny", "messages": [], "keep_alive": 0})");
  EXPECT_EQ(gone["done_reason"], "unload");
  EXPECT_TRUE(json::parse(BodyOf(Get("/api/ps")))["models"].empty());
  EXPECT_EQ(BodyOf(Get("/slots?fail_on_no_slot=1")), "[]") << "its slots would be free";
  Answer(kChat, Chat("Hello", R"("temperature": 0)"));
  EXPECT_EQ(json::parse(BodyOf(Get("/api/ps")))["models"].size(), 1U);
}

TEST_F(ApiTest, ResponsesSayTheSameWords) {
  const json chat = Answer(kChat, Chat("Hello", R"("temperature": 0)"));
  const std::string body = R"({"input": "Hello", "temperature": 0, "max_output_tokens": 16)";
  const json whole = Answer("/v1/responses", body + "}");
  const json& text = chat["choices"][0]["message"]["content"];
  EXPECT_EQ(whole["output"].back()["content"][0]["text"], text);
  std::string joined;
  int64_t number = 0;
  json last;
  for (const json& event : Events(Ask("/v1/responses", body + R"(, "stream": true})"))) {
    EXPECT_EQ(event["sequence_number"], number++);
    if (event["type"] == "response.output_text.delta") joined += event["delta"];
    last = event;
  }
  EXPECT_EQ(text, joined);
  EXPECT_EQ(last["response"]["output"].back()["content"][0]["text"], text);
}

TEST_F(ApiTest, AKeyIsAskedFor) {
  EXPECT_EQ(StatusOf(Get("/v1/models", "")), 401);
  EXPECT_EQ(StatusOf(Get("/v1/models", "Authorization: Bearer sk-87654321\r\n")), 401);
  EXPECT_EQ(StatusOf(Get("/v1/models", "X-Api-Key: sk-12345678\r\n")), 200);
  EXPECT_EQ(StatusOf(Get("/v1/models", "Authorization: bearer sk-12345678\r\n")), 200);
  EXPECT_EQ(StatusOf(Get("/health", "")), 200);
}

TEST_F(ApiTest, MetricsCountTokensAndNameNobody) {
  const double before = Metric("rullama_generated_tokens_total");
  Answer(kChat, Chat("Secret", R"("ignore_eos": true)"));
  EXPECT_EQ(Metric("rullama_generated_tokens_total"), before + 16);
  EXPECT_EQ(Metric("rullama_slots"), 4);
  EXPECT_THAT(Get("/metrics"), Not(HasSubstr("Secret")));
}

// Also after a prompt of several chunks, the first of which ends where the system's turn does.
TEST_F(ApiTest, EachDrawUnderASchemaMakesOneMask) {
  std::string rules;
  for (int i = 0; i < 40; ++i) rules += "a b ";
  const json body = {
      {"messages",
       {{{"role", "system"}, {"content", rules}}, {{"role", "user"}, {"content", "Hi"}}}},
      {"max_tokens", 8},
      {"response_format",
       {{"type", "json_schema"},
        {"json_schema", {{"name", "x"}, {"schema", {{"type", "string"}, {"minLength", 99}}}}}}}};
  const double steps = Metric("rullama_step_seconds_count{kind=\"prompt\"}");
  const double masks = Metric("rullama_mask_seconds_count");
  const json answer = Answer(kChat, body.dump());
  EXPECT_EQ(answer["usage"]["completion_tokens"], 8) << answer;
  EXPECT_GE(Metric("rullama_step_seconds_count{kind=\"prompt\"}"), steps + 2);
  EXPECT_EQ(Metric("rullama_mask_seconds_count"), masks + 8);
}

TEST_F(ApiTest, ThePageRunsOnlyItsOwnScript) {
  const std::string page = Get("/", "Accept: text/html\r\n");
  EXPECT_THAT(page, HasSubstr("script-src 'sha256-"));
  EXPECT_THAT(page, HasSubstr("<title>rullama</title>"));
  EXPECT_EQ(BodyOf(Get("/", "")), "Ollama is running");
}

TEST_F(ApiTest, ThePageForTheBrowsersOwnModelsHasItsFilesAlone) {
  EXPECT_THAT(Get("/web", ""), HasSubstr("Location: /web/index.html\r\n"));
  const std::string page = Get("/web/index.html", "");
  EXPECT_EQ(BodyOf(page), "<p>the page</p>");
  for (const char* field :
       {"Cross-Origin-Opener-Policy: same-origin\r\n",
        "Cross-Origin-Embedder-Policy: require-corp\r\n", "Content-Type: text/html"}) {
    EXPECT_THAT(page, HasSubstr(field));
  }
  const std::string module = Get("/web/module.wasm", "");
  EXPECT_THAT(module, HasSubstr("Content-Type: application/wasm\r\n"));
  EXPECT_EQ(BodyOf(module), std::string_view("\0asm", 4));
  for (const char* name : {"notes.txt", "missing.mjs", "folder.mjs", "x/index.html", ".mjs"}) {
    EXPECT_THAT(Get(std::string("/web/") + name, ""), testing::StartsWith("HTTP/1.1 404")) << name;
  }
}

TEST_F(ApiTest, FilesOfThePageForTheBrowsersOwnModelsAreSentOnce) {
  const std::string page = Get("/web/index.html", "");
  const size_t begin = page.find("ETag: ") + 6;
  const std::string etag = page.substr(begin, page.find("\r\n", begin) - begin);
  EXPECT_THAT(etag, testing::MatchesRegex("\"[0-9a-f]{64}\""));
  for (const std::string& known : {etag, "W/" + etag, "\"other\", " + etag, std::string("*")}) {
    const std::string answer = Get("/web/index.html", "If-None-Match: " + known + "\r\n");
    EXPECT_THAT(answer, testing::StartsWith("HTTP/1.1 304")) << known;
    EXPECT_THAT(answer, HasSubstr("ETag: " + etag));
    EXPECT_THAT(answer, Not(HasSubstr("Content-Length"))) << "it would be that of the file";
    EXPECT_EQ(BodyOf(answer), "");
  }
  EXPECT_EQ(BodyOf(Get("/web/index.html", "If-None-Match: \"other\"\r\n")), "<p>the page</p>");
}

TEST_F(ApiTest, FilesOfThePageForTheBrowsersOwnModelsAreThoseOfTheStart) {
  std::ofstream(web_folder_ + "/index.html") << "half a";
  EXPECT_EQ(BodyOf(Get("/web/index.html", "")), "<p>the page</p>");
}

TEST(WebFolderTest, HasAPage) {
  const std::string folder = testing::TempDir() + "/no_page";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/page.mjs") << "no page";
  for (const std::string& path : {folder, folder + "/page.mjs", folder + "/missing"}) {
    const auto read = WebFolder::Read(path);
    EXPECT_EQ(read ? "" : read.error().id, "server.web_folder") << path;
  }
}

TEST(ShowTest, DescribesAModelThatIsNotLoaded) {
  const EngineOptions options{.model = kModel,
                              .backend = "cpu",
                              .settings = {{"context.capacity", "64"}, {"sampler.top_k", "7"}},
                              .plugin_paths = {kPlugins}};
  const auto describe = [&options](size_t max_items) {
    return DescribeModel(Must(ConfigOf(options)), {}, max_items);
  };
  std::atomic<int> loads = 0;
  const auto load = [&]() -> Result<std::shared_ptr<Engine>> {
    ++loads;
    return Engine::Open(options);
  };
  std::vector<ServedModel> models;
  models.push_back({.id = "loaded", .load = load, .describe = describe});
  models.push_back({.id = "other", .load = load, .describe = describe});
  models.back().info.architecture = "gemma4";
  Api api(std::move(models), Must(load()), {.version = "1"});
  const auto server =
      Must(HttpServer::Start({}, [&api](Exchange& exchange) { api.Handle(exchange); }));
  const json shown = AskForJson(server->port(), "/api/show", R"({"model": "other"})");
  EXPECT_EQ(shown["details"]["family"], "gemma4");
  EXPECT_THAT(shown["parameters"], HasSubstr("top_k 7\n"));
  EXPECT_EQ(shown["model_info"]["general.architecture"], "gemma4");
  EXPECT_EQ(shown["capabilities"], json::array({"completion", "tools", "thinking", "embedding"}));
  EXPECT_TRUE(shown["model_info"]["tokenizer.ggml.tokens"].is_null());
  const json all = AskForJson(server->port(), "/api/show", R"({"name": "other", "verbose": true})");
  EXPECT_TRUE(all["model_info"]["tokenizer.ggml.tokens"].is_array());
  EXPECT_THAT(Ask(server->port(), "/api/show", R"({"model": "none"})"), HasSubstr("404 Not Found"));
  EXPECT_EQ(loads, 1) << "no more than the first";
}

TEST(ShowTest, EmbeddingIsACapabilityWhereItIsServed) {
  const auto capabilities = [](const char* path, bool embeddings) -> json {
    const EngineOptions options{.model = path,
                                .backend = "cpu",
                                .settings = {{"context.capacity", "160"}},
                                .plugin_paths = {kPlugins}};
    std::vector<ServedModel> models;
    models.push_back({.id = "m",
                      .load = [=] { return Engine::Open(options); },
                      .describe =
                          [=](size_t max_items) {
                            return DescribeModel(Must(ConfigOf(options)), {}, max_items);
                          }});
    Api api(std::move(models), Must(Engine::Open(options)),
            {.version = "1", .embeddings = embeddings});
    const auto server =
        Must(HttpServer::Start({}, [&api](Exchange& exchange) { api.Handle(exchange); }));
    const int status =
        StatusOf(server::Ask(server->port(), "/api/embed", R"({"model": "m", "input": "a"})"));
    const json shown = AskForJson(server->port(), "/api/show", R"({"model": "m"})")["capabilities"];
    EXPECT_EQ(status == 200, std::ranges::find(shown, json("embedding")) != shown.end())
        << path << embeddings << status;
    return shown;
  };
  EXPECT_EQ(capabilities(kModel, false), json::array({"completion", "tools", "thinking"}));
  EXPECT_EQ(capabilities(kModel, true).back(), "embedding");
  EXPECT_NE(capabilities(kDiffusion, true).back(), "embedding");
}

class CanvasApiTest : public ::testing::Test {
 protected:
  CanvasApiTest() {
    const auto open = [] {
      return Engine::Open({.model = kDiffusion,
                           .backend = "cpu",
                           .settings = {{"sampler.diffusion.max_steps", "6"},
                                        {"context.capacity", "160"},
                                        {"context.slots", "2"}},
                           .plugin_paths = {kPlugins}});
    };
    std::vector<ServedModel> models;
    models.push_back({.id = "canvas", .load = open});
    api_ = std::make_unique<Api>(std::move(models), Must(open()), ApiOptions{.version = "1"});
    server_ = Must(HttpServer::Start({}, [this](Exchange& exchange) { api_->Handle(exchange); }));
  }

  std::unique_ptr<Api> api_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(CanvasApiTest, ACanvasFitsAfterThePrompt) {
  const std::string turn = R"({"role": "user", "content": ")" + std::string(100, 'x') + R"("}, )";
  const std::string last = R"({"role": "user", "content": "Hi"})";
  const std::string body =
      R"({"model": "canvas", "max_tokens": 4, "stream": false, "messages": [)" + turn + last + "]";
  const json refused = json::parse(BodyOf(Ask(server_->port(), kChat, body + "}")))["error"];
  EXPECT_EQ(refused["code"], "context_length_exceeded");
  const auto message = refused["message"].get<std::string>();
  EXPECT_THAT(message, ::testing::StartsWith("This model's maximum context length is 96 tokens."));
  EXPECT_THAT(message, HasSubstr("A canvas takes 64 of the 160 tokens that fit."));
  const json shorter = AskForJson(server_->port(), "/api/chat", body + R"(, "truncate": true})");
  EXPECT_EQ(shorter["truncated_messages"], 1);
}

TEST_F(CanvasApiTest, AStreamShowsCanvasesIfAsked) {
  const std::string body = R"({"messages": [{"role": "user", "content": "Hello"}], "seed": 3,
                               "max_tokens": 20, "temperature": 0.5)";
  const json whole = AskForJson(server_->port(), kChat, body + "}");
  EXPECT_EQ(whole["timings"]["canvases"], 1);
  EXPECT_GT(whole["timings"]["denoise_steps"], 1);
  const std::string streamed =
      Ask(server_->port(), kChat,
          body + R"(, "stream": true, "stream_options": {"include_drafts": true}})");
  EXPECT_THAT(streamed, HasSubstr("X-Rullama-Ignored: temperature\r\n"));
  std::string text;
  int drafts = 0;
  int deltas = 0;
  for (const json& event : Events(streamed)) {
    if (event.is_string()) continue;
    for (const json& choice : event["choices"]) {
      const std::string delta = choice["delta"].value("content", "");
      deltas += delta.empty() ? 0 : 1;
      text += delta;
    }
    if (!event.contains("draft")) continue;
    ++drafts;
    EXPECT_TRUE(event["choices"].empty());
    EXPECT_EQ(event["draft"]["index"], 0);
    EXPECT_LE(event["draft"]["step"], event["draft"]["of"]);
    EXPECT_TRUE(event["draft"]["text"].is_string());
  }
  EXPECT_GT(drafts, 0);
  EXPECT_LE(deltas, 2) << "that of the canvas, and what could have become a marker";
  EXPECT_EQ(whole["choices"][0]["message"]["content"], text);
  EXPECT_THAT(Ask(server_->port(), kChat, body + R"(, "stream": true})"),
              Not(HasSubstr("draft\"")));
}

// A key is looked at before the body, and wrong ones are answered one after another.
TEST(KeysTest, WrongOnesAreRefusedByTheHead) {
  ApiKeys keys;
  ASSERT_TRUE(keys.AddLines("ann:sk-12345678", "keys"));
  std::vector<ServedModel> models;
  const auto open = [] {
    return Engine::Open({.model = kModel,
                         .backend = "cpu",
                         .settings = {{"backend.options.threads", "1"}},
                         .plugin_paths = {kPlugins}});
  };
  models.push_back({.id = "tiny", .time = 1, .load = open});
  Api api(std::move(models), Must(open()), {.version = "1"}, keys);
  const auto server = Must(HttpServer::Start(
      {.wants_body = [&api](const HttpRequest& head) { return api.WantsBody(head); }},
      [&api](Exchange& exchange) { api.Handle(exchange); }));
  const auto head = [](const std::string& path, const std::string& fields) {
    return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n" +
           fields + "\r\n";
  };
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(server->port()));
    clients.back()->Send(
        head(kChat, "Authorization: Bearer sk-wrong-" + std::to_string(i) + "\r\n"));
  }
  for (const auto& client : clients) {
    const std::string answer = client->ReadUntil("\r\n\r\n");
    EXPECT_EQ(StatusOf(answer), 401) << answer;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(400));
  for (const auto& [path, fields, status] :
       {std::tuple(std::string("/nowhere"), std::string(), 404),
        std::tuple(std::string("/health"), std::string(), 405),
        std::tuple(std::string(kChat), kKey + std::string("Content-Type: image/png\r\n"), 415)}) {
    Client client(server->port());
    client.Send(head(path, fields));
    EXPECT_EQ(StatusOf(client.ReadUntil("\r\n\r\n")), status) << path;
  }
  EXPECT_EQ(StatusOf(Ask(server->port(), "/tokenize", R"({"content": "a"})", kKey)), 200);
}

TEST_F(ApiTest, TextsThatFitIntoNoContextAreRefusedAtOnce) {
  std::string words(8 << 20, 'x');
  for (size_t i = 1; i < words.size(); i += 2) words[i] = ' ';
  const std::string prompt = R"({"prompt": ")" + words + R"("})";
  const json error = json::parse(BodyOf(Ask("/v1/completions", prompt)))["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("resulted in more than 1024 tokens"));
  EXPECT_EQ(error["n_prompt_tokens"], 1025);
  const json chat = json::parse(BodyOf(Ask(kChat, Chat(words, R"("temperature": 0)"))))["error"];
  EXPECT_EQ(chat["code"], "context_length_exceeded");
  for (const auto& [path, body] :
       {std::pair("/tokenize", R"({"content": ")" + words + R"("})"),
        std::pair("/v1/embeddings", R"({"input": ")" + words + R"("})"),
        std::pair("/v1/responses/input_tokens", R"({"input": ")" + words + R"("})")}) {
    const std::string answer = Ask(path, body);
    EXPECT_EQ(StatusOf(answer), 400) << path;
    EXPECT_THAT(answer, HasSubstr("context_length_exceeded")) << path;
  }
}

// Would run into the time limit of the test if the slots stayed taken.
TEST_F(ApiTest, ClientsThatLeaveGiveTheirSlotsBack) {
  for (int i = 0; i < 40; ++i) {
    Client client(server_->port());
    client.Send(Post(kChat, Chat("Hello", R"("stream": true)"), kKey));
    client.ReadUntil("data: ");
  }
  Answer(kChat, Chat("Hello", R"("temperature": 0)"));
}

}  // namespace
}  // namespace rullama::server
