// Adapters of requests over HTTP.
#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "server/adapter_fields.h"
#include "server/api.h"
#include "server/http/http_server.h"
#include "tests/fakes/adapter_folder.h"
#include "tests/server/client.h"

namespace rullama::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kAdaptedModel = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";
constexpr const char* kBackends = RULLAMA_BINARY_DIR "/lib/rullama";

// A server of the model "tiny" with the adapters "one" and "two".
class AdaptersApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::vector<ServedModel> models;
    models.push_back({.id = "tiny", .adapters = {"one", "two"}, .load = Open});
    api_ =
        new Api(std::move(models), Must(Open()), {.version = "1", .aliases = {{"other", "tiny"}}});
    server_ =
        Must(HttpServer::Start({}, [](Exchange& exchange) { api_->Handle(exchange); })).release();
  }
  static void TearDownTestSuite() {
    delete server_;
    delete api_;
  }
  // All are off.
  void SetUp() override { Post("/lora-adapters", json::array()); }

  static Result<std::shared_ptr<Engine>> Open() {
    const auto base = std::filesystem::path(::testing::TempDir()) / "server_adapters";
    WriteAdapterFolder(base / "one", 512);
    WriteAdapterFolder(base / "two", 512, {.rank = 2, .period = 5});
    return Engine::Open({.model = kAdaptedModel,
                         .backend = "cpu",
                         .settings = {{"context.slots", "2"},
                                      {"context.capacity", "256"},
                                      {"backend.options.threads", "1"}},
                         .adapters = {(base / "one").string(), (base / "two:0.5").string()},
                         .choose_adapters = true,
                         .plugin_paths = {kBackends}});
  }

  static std::string Post(const std::string& path, const json& body) {
    return Ask(server_->port(), path, body.dump());
  }
  static json List() {
    Client client(server_->port());
    client.Send("GET /lora-adapters HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return json::parse(BodyOf(client.ReadAll()));
  }
  // The text of an answer to a request with these members.
  static std::string Text(const json& members = json::object()) {
    json body = {{"prompt", "The sky"}, {"max_tokens", 12}, {"temperature", 0}};
    body.update(members);
    const std::string answer = BodyOf(Post("/v1/completions", body));
    const json parsed = json::parse(answer);
    return parsed.contains("choices") ? parsed["choices"][0]["text"].get<std::string>() : answer;
  }
  static json Lora(int id, double scale) { return {{"lora", {{{"id", id}, {"scale", scale}}}}}; }

  static Api* api_;
  static HttpServer* server_;
};
Api* AdaptersApiTest::api_ = nullptr;
HttpServer* AdaptersApiTest::server_ = nullptr;

TEST_F(AdaptersApiTest, ARequestChoosesThem) {
  const std::string bare = Text({{"lora", json::array()}});
  EXPECT_EQ(Text(), bare);
  const std::string one = Text(Lora(0, 1));
  EXPECT_NE(one, bare);
  EXPECT_NE(Text(Lora(1, 1)), one);
  EXPECT_EQ(Text(Lora(0, 1)), one);
}

TEST_F(AdaptersApiTest, TheyAreListedAndSet) {
  EXPECT_EQ(StatusOf(Post("/lora-adapters", json::array({{{"id", 1}, {"scale", 0.5}}}))), 200);
  const json list = List();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0],
            (json{{"id", 0}, {"path", "one"}, {"scale", 0.0}, {"rank", 1}, {"alpha", 4.0}}));
  EXPECT_EQ(list[1]["scale"], 0.5);
  EXPECT_EQ(Text(), Text(Lora(1, 0.5)));
  EXPECT_NE(Text(), Text({{"lora", json::array()}}));
}

// A request that is read has them, whatever is set before its last prompt is submitted.
TEST(AdapterFields, ThoseOfTheServerAreResolvedOnce) {
  const BodyContext context{.text = {},
                            .adapters = 2,
                            .chooses_adapters = true,
                            .adapters_in_force = {{.id = 1, .scale = 0.5}}};
  const json body = json::object();
  FieldReader fields(body);
  const auto found = ReadAdapters(fields, context);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().id, 1);
  EXPECT_EQ(found->front().scale, 0.5);
}

TEST_F(AdaptersApiTest, AListOfSixtyFourIsRead) {
  json all = json::array();
  for (int id = 0; id < 64; ++id) all.push_back({{"id", id}, {"scale", 1}});
  FieldReader fields(all);
  ReadAdapterList(fields, all, "lora", {.text = {}, .adapters = 64, .chooses_adapters = true});
  EXPECT_FALSE(fields.error());
}

TEST_F(AdaptersApiTest, AModelNameMayHaveOne) {
  EXPECT_EQ(Text({{"model", "tiny:one"}}), Text(Lora(0, 1)));
  EXPECT_EQ(Text({{"model", "other:two"}}), Text(Lora(1, 0.5))) << "with the factor of its own";
  EXPECT_EQ(Text({{"model", "tiny"}}), Text());
  const json answer = AskForJson(server_->port(), "/v1/completions",
                                 R"({"model": "tiny:one", "prompt": "a", "max_tokens": 1})");
  EXPECT_EQ(answer["model"], "tiny:one");
  for (const char* name : {"tiny:none", "none:one", ":one", "tiny:"}) {
    const std::string refused = Post("/v1/completions", {{"model", name}});
    EXPECT_EQ(StatusOf(refused), 404) << name;
  }
  json both = Lora(1, 1);
  both["model"] = "tiny:one";
  EXPECT_THAT(Text(both), HasSubstr("leave one of them out"));
}

TEST_F(AdaptersApiTest, AllEndpointsTakeThem) {
  const json messages = json::array({{{"role", "user"}, {"content", "Hello"}}});
  const std::pair<const char*, json> requests[] = {
      {"/v1/chat/completions", {{"messages", messages}, {"max_tokens", 8}}},
      {"/v1/messages", {{"messages", messages}, {"max_tokens", 8}, {"model", "tiny"}}},
      {"/v1/responses", {{"input", "Hello"}, {"max_output_tokens", 8}}},
      {"/v1/embeddings", {{"input", "Hello"}}}};
  for (const auto& [path, members] : requests) {
    json body = members;
    body["lora"] = {{{"id", 1}, {"scale", 1}}};
    const std::string answer = Post(path, body);
    EXPECT_EQ(StatusOf(answer), 200) << path;
    EXPECT_EQ(answer.find("X-Rullama-Ignored"), std::string::npos) << path;
    body["lora"] = {{{"id", 2}, {"scale", 1}}};
    EXPECT_EQ(StatusOf(Post(path, body)), 400) << path;
  }
  const json options = {{"lora", {{{"id", 9}, {"scale", 1}}}}};
  for (const auto& [path, member] :
       {std::pair{"/api/generate", "prompt"}, {"/api/embed", "input"}}) {
    const std::string answer = Post(path, {{"model", "tiny"}, {member, "a"}, {"options", options}});
    EXPECT_EQ(StatusOf(answer), 400) << path;
    EXPECT_THAT(answer, HasSubstr("options.lora[0].id")) << path;
  }
}

TEST_F(AdaptersApiTest, WrongListsChangeNothing) {
  const std::pair<const char*, const char*> lists[] = {
      {R"(5)", "lora"},
      {R"({"id": 0, "scale": 1})", "lora"},
      {R"([0])", "lora[0]"},
      {R"([{"scale": 1}])", "lora[0].id"},
      {R"([{"id": 0}])", "lora[0].scale"},
      {R"([{"id": 2, "scale": 1}])", "lora[0].id"},
      {R"([{"id": "0", "scale": 1}])", "lora[0].id"},
      {R"([{"id": 0.5, "scale": 1}])", "lora[0].id"},
      {R"([{"id": 0, "scale": true}])", "lora[0].scale"},
      {R"([{"id": 0, "scale": 1e9}])", "lora[0].scale"},
      {R"([{"id": 0, "scale": 1}, {"id": 0, "scale": 2}])", "lora[1].id"},
      {R"([{"id": 0, "scale": 1, "path": "x"}])", "lora[0].path"}};
  ASSERT_EQ(StatusOf(Post("/lora-adapters", json::array({{{"id", 0}, {"scale", 0.5}}}))), 200);
  for (const auto& [list, place] : lists) {
    const std::string answer = Ask(server_->port(), "/v1/completions",
                                   std::string(R"({"prompt": "a", "lora": )") + list + "}");
    EXPECT_EQ(StatusOf(answer), 400) << list;
    EXPECT_EQ(json::parse(BodyOf(answer))["error"]["param"], place) << list;
    EXPECT_EQ(StatusOf(Ask(server_->port(), "/lora-adapters", list)), 400) << list;
  }
  for (const char* body : {"", "[", "[{\"id\": 0, \"id\": 1}]", "\xff"}) {
    EXPECT_EQ(StatusOf(Ask(server_->port(), "/lora-adapters", body)), 400) << body;
  }
  const json many(65, json{{"id", 0}, {"scale", 0}});
  EXPECT_THAT(Text({{"lora", many}}), HasSubstr("expected at most 64"));
  EXPECT_EQ(List()[0]["scale"], 0.5);
}

}  // namespace
}  // namespace rullama::server
