// Pictures and sound over HTTP, against texts of transformers. Needs ../shared.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "core/base/read_file_test_util.h"
#include "engine/loading/engine_config.h"
#include "server/api.h"
#include "server/base64.h"
#include "server/http/http_server.h"
#include "tests/server/client.h"

namespace rullama::server {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kShared = RULLAMA_SOURCE_DIR "/../shared";
const std::string kMedia = kShared + "/goldens/tiny-media/";
constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kQuestion = "Who stands at the left of the prince?";
constexpr const char* kAnswer =
    "\"Oh, yes, master, I was found worthy. Such a brightness on the face like the light";
constexpr const char* kHeard = "\"Think? What about?\" asked Prince Andrew with surprise.";

std::string Encoded(const std::string& name) {
  const std::string bytes = ReadWholeFile(kMedia + name);
  return Base64(std::as_bytes(std::span(bytes)));
}

json UserSays(json content) {
  return json::array({{{"role", "user"}, {"content", std::move(content)}}});
}

class MediaApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::vector<ServedModel> models;
    models.push_back({.id = "tiny", .time = 1, .load = Open, .describe = Describe});
    api_ = new Api(std::move(models), Must(Open()), {.version = "1"}, {});
    server_ =
        Must(HttpServer::Start({}, [](Exchange& exchange) { api_->Handle(exchange); })).release();
  }
  static void TearDownTestSuite() {
    delete server_;
    delete api_;
  }
  static EngineOptions Options() {
    return {.model = kShared + "/models/tiny-e2b-f16.gguf",
            .backend = "cpu",
            .settings = {{"model.mmproj", kShared + "/models/tiny-e2b-mmproj-f16.gguf"},
                         {"generation.image_tokens", "70"},
                         {"context.capacity", "512"},
                         {"backend.options.threads", "1"}},
            .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}};
  }
  static Result<std::shared_ptr<Engine>> Open() { return Engine::Open(Options()); }
  static Result<ModelDescription> Describe(size_t max_items) {
    return DescribeModel(Must(ConfigOf(Options())), {}, max_items);
  }

  static std::string Ask(const std::string& path, const json& body) {
    return server::Ask(server_->port(), path, body.dump());
  }
  static json Answer(const std::string& path, const json& body) {
    return AskForJson(server_->port(), path, body.dump());
  }

  static Api* api_;
  static HttpServer* server_;
};
Api* MediaApiTest::api_ = nullptr;
HttpServer* MediaApiTest::server_ = nullptr;

TEST_F(MediaApiTest, ChatsTakeDataUrlsAndSound) {
  const std::string url = "data:image/png;base64," + Encoded("wide-palette.png");
  json body = {{"messages", UserSays({{{"type", "image_url"}, {"image_url", {{"url", url}}}},
                                      {{"type", "text"}, {"text", kQuestion}}})},
               {"max_tokens", 24},
               {"temperature", 0}};
  const json answer = Answer(kChat, body);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], kAnswer);

  // The next turn reads the picture from the cache.
  body["messages"].push_back(answer["choices"][0]["message"]);
  body["messages"].push_back({{"role", "user"}, {"content", "And then?"}});
  const json next = Answer(kChat, body);
  EXPECT_GE(next["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>(), 69);

  body["messages"] =
      UserSays({{{"type", "input_audio"},
                 {"input_audio", {{"data", Encoded("speech-16k-mono.wav")}, {"format", "wav"}}}},
                {{"type", "text"}, {"text", "Write down what was said."}}});
  EXPECT_EQ(Answer(kChat, body)["choices"][0]["message"]["content"], kHeard);
}

TEST_F(MediaApiTest, AToolMayReturnAPicture) {
  const std::string url = "data:image/png;base64," + Encoded("wide-palette.png");
  const auto prompt_tokens = [](const json& content) {
    const json call = {
        {"id", "c"}, {"type", "function"}, {"function", {{"name", "look"}, {"arguments", "{}"}}}};
    const json body = {{"messages",
                        {{{"role", "user"}, {"content", "Look."}},
                         {{"role", "assistant"}, {"tool_calls", {call}}},
                         {{"role", "tool"}, {"tool_call_id", "c"}, {"content", content}}}},
                       {"tools", {{{"type", "function"}, {"function", {{"name", "look"}}}}}},
                       {"max_tokens", 1}};
    return Answer(kChat, body)["usage"]["prompt_tokens"].get<int>();
  };
  const json text = {{"type", "text"}, {"text", "Here it is."}};
  const json picture = {{"type", "image_url"}, {"image_url", {{"url", url}}}};
  EXPECT_GT(prompt_tokens(json::array({text, picture})), prompt_tokens(json::array({text})) + 60);
}

TEST_F(MediaApiTest, ResponsesTakeInputImages) {
  const json answer = Answer(
      "/v1/responses",
      {{"input", UserSays({{{"type", "input_image"},
                            {"detail", "low"},
                            {"image_url", "data:image/png;base64," + Encoded("wide-palette.png")}},
                           {{"type", "input_text"}, {"text", kQuestion}}})},
       {"max_output_tokens", 24},
       {"temperature", 0}});
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], kAnswer);
}

TEST_F(MediaApiTest, OllamaTakesImagesOfBothKinds) {
  const json options = {{"num_predict", 24}, {"temperature", 0}};
  json message = {
      {"role", "user"}, {"content", kQuestion}, {"images", {Encoded("wide-palette.png")}}};
  const json chat =
      Answer("/api/chat",
             {{"model", "tiny"}, {"messages", {message}}, {"stream", false}, {"options", options}});
  EXPECT_EQ(chat["message"]["content"], kAnswer);
  const json generated = Answer("/api/generate", {{"model", "tiny"},
                                                  {"prompt", "Write down what was said."},
                                                  {"images", {Encoded("speech-16k-mono.wav")}},
                                                  {"stream", false},
                                                  {"options", options}});
  EXPECT_EQ(generated["response"], kHeard);
  const json shown = Answer("/api/show", {{"model", "tiny"}});
  EXPECT_THAT(shown["capabilities"], Contains("vision"));
  EXPECT_THAT(shown["capabilities"], Contains("audio"));
  Client client(server_->port());
  client.Send("GET /props HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const json properties = json::parse(BodyOf(client.ReadAll()));
  EXPECT_EQ(properties["modalities"], (json{{"vision", true}, {"audio", true}}));
  EXPECT_EQ(properties["rullama"]["models"][0]["modalities"], properties["modalities"]);
}

// Text and towers in one file. The prompt is one of the goldens: 33 rows, 9 of them of the picture.
TEST(Gemma3ApiTest, ChatsTakePictures) {
  const EngineOptions options = {
      .model = kShared + "/models/family/tiny-gemma3-ollama-f16.gguf",
      .backend = "cpu",
      .settings = {{"context.capacity", "256"}, {"backend.options.threads", "1"}},
      .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}};
  const auto open = [&] { return Engine::Open(options); };
  std::vector<ServedModel> models;
  models.push_back({.id = "tiny", .time = 1, .load = open, .describe = [&](size_t max_items) {
                      return DescribeModel(Must(ConfigOf(options)), {}, max_items);
                    }});
  Api api(std::move(models), Must(open()), {.version = "1"}, {});
  const auto server =
      Must(HttpServer::Start({}, [&](Exchange& exchange) { api.Handle(exchange); }));
  const std::string picture = ReadWholeFile(kShared + "/goldens/gemma3-vision/wide.png");
  const std::string url = "data:image/png;base64," + Base64(std::as_bytes(std::span(picture)));
  // `detail` asks for a number of tokens, of which this model has but one.
  const json body = {
      {"messages",
       UserSays({{{"type", "image_url"}, {"image_url", {{"url", url}, {"detail", "high"}}}},
                 {{"type", "text"}, {"text", "What is in this picture?"}}})},
      {"max_tokens", 4},
      {"temperature", 0}};
  const json answer = AskForJson(server->port(), kChat, body.dump());
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 33);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "ZZZank");
  const json shown = AskForJson(server->port(), "/api/show", json{{"model", "tiny"}}.dump());
  EXPECT_THAT(shown["capabilities"], Contains("vision"));
}

TEST(EmbeddedMediaTest, PicturesAndSoundsAreVectors) {
  const std::string family = kShared + "/models/family/tiny-embeddinggemma2-";
  const std::string goldens = kShared + "/goldens/embeddinggemma2/";
  const EngineOptions options{.model = family + "bf16.gguf",
                              .backend = "cpu",
                              .settings = {{"model.mmproj", family + "mmproj-bf16.gguf"},
                                           {"generation.image_tokens", "70"},
                                           {"backend.options.threads", "1"}},
                              .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}};
  const auto open = [&options] { return Engine::Open(options); };
  const auto describe = [&options](size_t max_items) {
    return DescribeModel(Must(ConfigOf(options)), {}, max_items);
  };
  std::vector<ServedModel> models;
  models.push_back({.id = "tiny", .time = 1, .load = open, .describe = describe});
  Api api(std::move(models), Must(open()), {.version = "1"}, {});
  const auto server =
      Must(HttpServer::Start({}, [&](Exchange& exchange) { api.Handle(exchange); }));
  const auto file = [&](const std::string& name) {
    const std::string bytes = ReadWholeFile(goldens + name);
    return Base64(std::as_bytes(std::span(bytes)));
  };
  const json image = {{"type", "image_url"},
                      {"image_url", {{"url", "data:image/png;base64," + file("wide.png")}}}};
  const json sound = {{"type", "input_audio"},
                      {"input_audio", {{"data", file("speech.wav")}, {"format", "wav"}}}};
  const auto text = [](const char* words) { return json{{"type", "text"}, {"text", words}}; };
  const json inputs = {{{"content", {image}}},
                       {{"content", {sound}}},
                       "a text",
                       {{"content", {image, text("a picture")}}}};
  const json answer =
      AskForJson(server->port(), "/v1/embeddings", json{{"input", inputs}}.dump())["data"];
  ASSERT_EQ(answer.size(), 4u);
  const json golden = json::parse(ReadWholeFile(goldens + "golden.json"));
  for (const auto& [name, index] : {std::pair("image", 0u), std::pair("audio", 1u)}) {
    const auto found =
        std::ranges::find(golden["cases"], json(name), [](const json& one) { return one["name"]; });
    const std::vector<double> expected = (*found)["embedding"];
    const std::vector<double> values = answer[index]["embedding"];
    double squares = 0;
    for (size_t i = 0; i < values.size(); ++i) squares += std::pow(values[i] - expected[i], 2);
    EXPECT_LE(std::sqrt(squares), 2e-3) << name;
  }
  // Ollama's form: a list of pictures beside the texts.
  const json beside = {{"model", "tiny"},
                       {"input", {"a text", "a picture"}},
                       {"images", {nullptr, file("wide.png")}}};
  const json vectors = AskForJson(server->port(), "/api/embed", beside.dump())["embeddings"];
  EXPECT_EQ(vectors[0], answer[2]["embedding"]);
  EXPECT_EQ(vectors[1], answer[3]["embedding"]);
}

TEST_F(MediaApiTest, WhatIsNoPictureIsRefused) {
  const auto error_of = [](const std::string& url, const std::string& role = "user") {
    json messages = UserSays({{{"type", "image_url"}, {"image_url", {{"url", url}}}}});
    messages[0]["role"] = role;
    const std::string answer = Ask(kChat, {{"messages", messages}});
    EXPECT_EQ(StatusOf(answer), 400) << answer;
    const json error = json::parse(BodyOf(answer))["error"];
    return error["code"].get<std::string>() + " " + error["message"].get<std::string>();
  };
  EXPECT_THAT(error_of("https://example.com/cat.png"), HasSubstr("nothing is downloaded"));
  EXPECT_THAT(error_of("file:///etc/passwd"), StartsWith("unsupported_value"));
  EXPECT_THAT(error_of("data:image/png,abc"), StartsWith("invalid_value"));
  EXPECT_THAT(error_of("data:image/png;base64,@@@@"), HasSubstr("base64"));
  EXPECT_THAT(error_of("data:image/png;base64,AAAA"), HasSubstr("[media.format]"));
  EXPECT_THAT(error_of("data:image/png;base64,iVBORw0KGgo="), HasSubstr("[media.damaged]"));
  EXPECT_THAT(error_of("data:image/png;base64,AAAA", "assistant"),
              HasSubstr("messages[0].content[0].type"));
}

}  // namespace
}  // namespace rullama::server
