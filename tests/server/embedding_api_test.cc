// The endpoints of embeddings on a tiny EmbeddingGemma of random weights, over HTTP.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/loading/engine_config.h"
#include "models/gemma3/tiny_gemma3_test_util.h"
#include "server/api.h"
#include "server/base64.h"
#include "server/http/http_server.h"
#include "tests/server/client.h"

namespace rullama::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kEmbeddings = "/v1/embeddings";

// One engine and one server for all tests.
class EmbeddingApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    path_ = new std::string(WriteTinyGemma3("embedding_api_test.gguf", TinyEmbeddingGemma()));
    const EngineOptions options{.model = *path_,
                                .backend = "cpu",
                                .settings = {{"backend.options.threads", "1"}},
                                .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}};
    std::vector<ServedModel> models;
    models.push_back({.id = "tiny",
                      .load = [=] { return Engine::Open(options); },
                      .describe =
                          [=](size_t max_items) {
                            return DescribeModel(Must(ConfigOf(options)), {}, max_items);
                          }});
    api_ = new Api(std::move(models), Must(Engine::Open(options)), {.version = "1"});
    server_ =
        Must(HttpServer::Start({}, [](Exchange& exchange) { api_->Handle(exchange); })).release();
  }
  static void TearDownTestSuite() {
    delete server_;
    delete api_;
    std::filesystem::remove(*path_);
    delete path_;
  }

  static std::string Ask(std::string_view path, const json& body) {
    return server::Ask(server_->port(), path, body.dump());
  }
  static json Answer(std::string_view path, const json& body) {
    return AskForJson(server_->port(), path, body.dump());
  }
  static json VectorOf(const json& body) {
    return Answer(kEmbeddings, body)["data"][0]["embedding"];
  }

  static std::string* path_;
  static Api* api_;
  static HttpServer* server_;
};
std::string* EmbeddingApiTest::path_ = nullptr;
Api* EmbeddingApiTest::api_ = nullptr;
HttpServer* EmbeddingApiTest::server_ = nullptr;

TEST_F(EmbeddingApiTest, ATaskIsItsPromptBeforeTheText) {
  const json expected = VectorOf({{"input", "task: search result | query: war"}});
  EXPECT_EQ(expected.size(), 32u);
  for (const auto& [field, name] :
       {std::pair("prompt_name", "query"), std::pair("input_type", "search_query"),
        std::pair("task_type", "RETRIEVAL_QUERY")}) {
    EXPECT_EQ(VectorOf({{"input", "war"}, {field, name}}), expected) << field;
    EXPECT_EQ(VectorOf({{"input", "war"}, {"extra_body", {{field, name}}}}), expected) << field;
  }
  EXPECT_NE(VectorOf({{"input", "war"}}), expected);
}

TEST_F(EmbeddingApiTest, APromptIsNotRepeated) {
  const std::string text = "task: search result | query: war";
  const std::string answer = Ask(kEmbeddings, {{"input", text}, {"prompt_name", "query"}});
  EXPECT_THAT(answer, HasSubstr("X-Rullama-Ignored: prompt_name"));
  EXPECT_EQ(json::parse(BodyOf(answer))["data"][0]["embedding"], VectorOf({{"input", text}}));
}

TEST_F(EmbeddingApiTest, WhatIsWrongWithARequest) {
  const struct {
    json body;
    std::string_view says;
  } table[] = {
      {{{"input", "a"}, {"prompt_name", "none"}}, "query, document, "},
      {{{"input", "a"}, {"input_type", "none"}}, "search_query"},
      {{{"input", "a"}, {"input_type", "query"}, {"prompt_name", "query"}}, "expected one of them"},
      {{{"input", "a"}, {"normalize", false}}, "length 1"},
      {{{"input", "a"}, {"dimensions", 33}}, "32"},
      {{{"input", json::array({5, 6})}}, "BOS"},
      {{{"input", std::string(200, 'x')}}, "context_length_exceeded"},
  };
  for (const auto& row : table) {
    const std::string answer = Ask(kEmbeddings, row.body);
    EXPECT_EQ(StatusOf(answer), 400) << answer;
    EXPECT_THAT(answer, HasSubstr(row.says));
  }
}

TEST_F(EmbeddingApiTest, OllamaCutsOnlyIfAsked) {
  const std::string text(200, 'x');
  EXPECT_EQ(StatusOf(Ask("/api/embed", {{"model", "tiny"}, {"input", text}})), 400);
  const json cut = Answer("/api/embed", {{"model", "tiny"}, {"input", text}, {"truncate", true}});
  EXPECT_EQ(cut["embeddings"][0].size(), 32u);
  EXPECT_EQ(cut["prompt_eval_count"], 64);
}

TEST_F(EmbeddingApiTest, AVectorDoesNotDependOnItsCompany) {
  json inputs = json::array();
  for (int i = 1; i <= 24; ++i) inputs.push_back(std::string(static_cast<size_t>(i), 'a'));
  const json together = Answer(kEmbeddings, {{"input", inputs}});
  for (const size_t i : {0u, 7u, 23u}) {
    EXPECT_EQ(together["data"][i]["embedding"], VectorOf({{"input", inputs[i]}})) << i;
  }
}

TEST_F(EmbeddingApiTest, AsManyInputsAsOpenAiTakes) {
  json inputs = json::array();
  for (int i = 0; i < 2048; ++i) inputs.push_back(fmt::format("text {}", i));
  const json answer = Answer(kEmbeddings, {{"input", inputs}});
  ASSERT_EQ(answer["data"].size(), 2048u);
  EXPECT_EQ(answer["data"][2047]["index"], 2047);
  EXPECT_EQ(answer["data"][777]["embedding"], VectorOf({{"input", "text 777"}}));
  inputs.push_back("one more");
  EXPECT_THAT(Ask(kEmbeddings, {{"input", inputs}}), HasSubstr("has 2049 texts"));
}

TEST_F(EmbeddingApiTest, AWrongInputIsNamed) {
  const json inputs = {"a", std::string(200, 'x'), "b"};
  const std::string answer = Ask(kEmbeddings, {{"input", inputs}});
  EXPECT_EQ(StatusOf(answer), 400);
  EXPECT_THAT(answer, HasSubstr("(input 1)"));
}

TEST_F(EmbeddingApiTest, Base64AndFloatAreTheSameNumbers) {
  for (const int dimensions : {32, 31, 16, 1}) {
    const json whole = VectorOf({{"input", "war"}, {"dimensions", dimensions}});
    ASSERT_EQ(whole.size(), static_cast<size_t>(dimensions));
    const json packed =
        VectorOf({{"input", "war"}, {"dimensions", dimensions}, {"encoding_format", "base64"}});
    const std::vector<float> values = whole;
    EXPECT_EQ(packed, Base64(std::as_bytes(std::span(values))));
  }
}

// The bodies that clients send, members that mean nothing here included.
TEST_F(EmbeddingApiTest, RequestsOfClients) {
  const json expected = VectorOf({{"input", "task: search result | query: war"}});
  const auto same = [&](std::string_view path, const json& body, const json& found) {
    EXPECT_EQ(found, expected) << path << ' ' << body;
  };
  const std::string text = "task: search result | query: war";
  // openai, LiteLLM, Haystack, Open WebUI; langchain-openai; llama-index-embeddings-openai
  for (const json& body :
       {json{{"input", json::array({text})}, {"model", "tiny"}, {"encoding_format", "float"}},
        json{{"input", json::array({text})}, {"model", "tiny"}, {"user", "me"}},
        json{{"input", json::array({text})}, {"model", "tiny"}, {"dimensions", 32}}}) {
    same(kEmbeddings, body, VectorOf(body));
  }
  // ollama and langchain-ollama; llama-index-embeddings-ollama
  for (const json& body :
       {json{{"model", "tiny"},
             {"input", json::array({text})},
             {"options", json::object()},
             {"keep_alive", 300}},
        json{{"model", "tiny"}, {"input", text}, {"truncate", true}, {"dimensions", 32}}}) {
    same("/api/embed", body, Answer("/api/embed", body)["embeddings"][0]);
  }
  // Clients of Text Embeddings Inference.
  const json tei = {{"input", "war"}, {"prompt_name", "query"}, {"normalize", true}};
  same(kEmbeddings, tei, VectorOf(tei));
}

TEST_F(EmbeddingApiTest, ImagesStandBesideInputs) {
  const json texts = {"a", "b"};
  const auto ask = [&](const json& images) {
    return Ask("/api/embed", {{"model", "tiny"}, {"input", texts}, {"images", images}});
  };
  EXPECT_EQ(StatusOf(ask({nullptr, nullptr})), 200);
  for (const json& wrong :
       {json::array(), json::array({nullptr}), json("aa"), json::array({1, 2})}) {
    EXPECT_EQ(StatusOf(ask(wrong)), 400) << wrong;
  }
  EXPECT_THAT(ask({nullptr}), HasSubstr("one entry for each of 2 inputs"));
  const std::string without_tower = ask({nullptr, "R0lGODlhAQABAAAAACw="});
  EXPECT_EQ(StatusOf(without_tower), 400) << without_tower;
  EXPECT_THAT(without_tower, HasSubstr("(input 1)"));
}

TEST_F(EmbeddingApiTest, ItIsNotALanguageModel) {
  const json messages = {{{"role", "user"}, {"content", "Hi"}}};
  for (const auto& [path, body] :
       {std::pair("/v1/chat/completions", json{{"messages", messages}}),
        std::pair("/v1/completions", json{{"prompt", "Hi"}}),
        std::pair("/api/generate", json{{"model", "tiny"}, {"prompt", "Hi"}})}) {
    const std::string answer = Ask(path, body);
    EXPECT_EQ(StatusOf(answer), 400) << path;
    EXPECT_THAT(answer, HasSubstr("not a language model; use /v1/embeddings")) << path;
  }
  EXPECT_EQ(Answer("/api/show", {{"model", "tiny"}})["capabilities"], json::array({"embedding"}));
}

TEST_F(EmbeddingApiTest, PropsDescribeIt) {
  Client client(server_->port());
  client.Send("GET /props HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const json props = json::parse(BodyOf(client.ReadAll()))["rullama"];
  EXPECT_EQ(props["pooling"], "mean");
  EXPECT_EQ(props["dimensions"], 32);
  EXPECT_EQ(props["dense"], true);
  EXPECT_EQ(props["prompts"]["document"], "title: none | text: ");
}

}  // namespace
}  // namespace rullama::server
