// Drafts by the drafter of a model over HTTP. Needs ../shared.
#include <gmock/gmock.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "server/api.h"
#include "server/http/http_server.h"
#include "tests/server/client.h"

namespace rullama::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kSharedFiles = RULLAMA_SOURCE_DIR "/../shared/";
constexpr const char* kDraftingBackends = RULLAMA_BINARY_DIR "/lib/rullama";
constexpr const char* kCompletions = "/v1/completions";

class DraftsApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::ifstream file(kSharedFiles + "goldens/mtp-e2b/golden.json");
    case_ = json::parse(file).at("cases").at(0);
    std::vector<ServedModel> models;
    models.push_back({.id = "tiny", .load = Open});
    api_ = new Api(std::move(models), Must(Open()), {.version = "1"});
    server_ =
        Must(HttpServer::Start({}, [](Exchange& exchange) { api_->Handle(exchange); })).release();
  }
  static void TearDownTestSuite() {
    delete server_;
    delete api_;
  }

  static Result<std::shared_ptr<Engine>> Open() {
    return Engine::Open(
        {.model = kSharedFiles + "models/tiny-e2b-f16.gguf",
         .backend = "cpu",
         .settings = {{"context.slots", "2"},
                      {"context.capacity", "256"},
                      {"drafts.model", kSharedFiles + "models/mtp/tiny-e2b-mtp-f16.gguf"},
                      {"drafts.mtp", "true"},
                      {"drafts.max", "4"},
                      {"backend.options.threads", "1"}},
         .plugin_paths = {kDraftingBackends}});
  }

  // A golden prompt, and these members.
  static std::string Body(const json& members = json::object()) {
    json body = {{"prompt", case_.at("prompt")}, {"max_tokens", 40}, {"temperature", 0}};
    body.update(members);
    return body.dump();
  }
  static json Answer(const json& members = json::object()) {
    return AskForJson(server_->port(), kCompletions, Body(members));
  }
  static std::string Get(const std::string& path) {
    Client client(server_->port());
    client.Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return BodyOf(client.ReadAll());
  }
  static int64_t Metric(const std::string& name) {
    const std::string text = Get("/metrics");
    const size_t at = text.find("\nrullama_" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return std::stoll(text.substr(text.find(' ', at) + 1));
  }

  static json case_;
  static Api* api_;
  static HttpServer* server_;
};
json DraftsApiTest::case_;
Api* DraftsApiTest::api_ = nullptr;
HttpServer* DraftsApiTest::server_ = nullptr;

TEST_F(DraftsApiTest, TimingsTellThem) {
  const json answer = Answer();
  const json& timings = answer.at("timings");
  EXPECT_GT(timings.at("draft_n"), 20);
  EXPECT_GT(timings.at("draft_n_accepted"), 10);
  EXPECT_LE(timings.at("draft_n_accepted"), timings.at("draft_n"));
  const json without = Answer({{"speculative", {{"max", 0}}}});
  EXPECT_EQ(without.at("choices").at(0).at("text"), answer.at("choices").at(0).at("text"));
  EXPECT_FALSE(without.at("timings").contains("draft_n"));
}

// Each form of request limits them, in the words of its API.
TEST_F(DraftsApiTest, RequestsLimitThem) {
  const auto drafted = [](const json& members) {
    return Answer(members).at("timings").value("draft_n", 0);
  };
  const int all = drafted(json::object());
  const int single = drafted({{"speculative", {{"max", 1}}}});
  EXPECT_LT(single, 40);
  EXPECT_EQ(drafted({{"speculative.n_max", 1}}), single);
  EXPECT_EQ(drafted({{"speculative.n_max", 0}}), 0);
  EXPECT_LT(drafted({{"speculative", {{"min_probability", 0.9}}}}), all);
  EXPECT_LT(drafted({{"speculative.p_min", 0.9}}), all);
  const json ollama = {{"model", "tiny"},
                       {"prompt", "It was in July"},
                       {"raw", true},
                       {"stream", false},
                       {"options", {{"num_predict", 20}, {"temperature", 0}}}};
  const int64_t before = Metric("drafted_tokens_total");
  AskForJson(server_->port(), "/api/generate", ollama.dump());
  const int64_t after = Metric("drafted_tokens_total");
  EXPECT_GT(after, before);
  json off = ollama;
  off["options"]["draft_num_predict"] = 0;
  AskForJson(server_->port(), "/api/generate", off.dump());
  EXPECT_EQ(Metric("drafted_tokens_total"), after);
}

TEST_F(DraftsApiTest, MetricsCountThemByPlace) {
  const int64_t drafted = Metric("drafted_tokens_total");
  const int64_t accepted = Metric("draft_accepted_tokens_total");
  const int64_t first = Metric("draft_accepted_tokens_by_place_total{place=\"1\"}");
  const json timings = Answer().at("timings");
  EXPECT_EQ(Metric("drafted_tokens_total"), drafted + timings.at("draft_n").get<int64_t>());
  EXPECT_EQ(Metric("draft_accepted_tokens_total"),
            accepted + timings.at("draft_n_accepted").get<int64_t>());
  const int64_t more = Metric("draft_accepted_tokens_by_place_total{place=\"1\"}") - first;
  EXPECT_GT(more, 5);
  EXPECT_LT(more, timings.at("draft_n_accepted"));
}

TEST_F(DraftsApiTest, WrongLimitsAreRefused) {
  const struct {
    json members;
    std::string message;
  } requests[] = {
      {{{"speculative", 3}}, "speculative"},
      {{{"speculative", {{"max", -1}}}}, "speculative.max"},
      {{{"speculative", {{"max", "four"}}}}, "speculative.max"},
      {{{"speculative", {{"min_probability", 1.5}}}}, "speculative.min_probability"},
      {{{"speculative", {{"most", 4}}}}, "expected max or min_probability"},
      {{{"speculative.n_max", -2}}, "speculative.n_max"},
      {{{"speculative.p_min", "high"}}, "speculative.p_min"},
  };
  for (const auto& request : requests) {
    const std::string answer = Ask(server_->port(), kCompletions, Body(request.members));
    EXPECT_EQ(StatusOf(answer), 400) << answer;
    EXPECT_THAT(BodyOf(answer), HasSubstr(request.message));
  }
}

}  // namespace
}  // namespace rullama::server
