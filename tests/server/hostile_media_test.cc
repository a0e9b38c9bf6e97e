// Hostile pictures and sounds over HTTP: each is refused with its status and code, or taken.
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/engine_access.h"
#include "engine/loading/engine_config.h"
#include "engine/media/media_budget.h"
#include "media/hostile_files_test_util.h"
#include "models/registry.h"
#include "server/api.h"
#include "server/base64.h"
#include "server/http/http_server.h"
#include "tests/server/client.h"

namespace rullama::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Towers of random weights for the tiny text model.
std::string WriteTowers() {
  ArchitectureConfig architecture;
  architecture.width = 256;
  architecture.vision = {.layers = 0, .width = 16, .patch = 4, .positions = 64};
  architecture.audio.layers = 0;
  std::string path = ::testing::TempDir() + "/hostile_media_server.gguf";
  const Status status = ModelFamilies().front()->write_synthetic_towers(
      architecture, {.mix = Must(FindQuantMix("F16")), .name = "test"}, path);
  EXPECT_TRUE(status) << status.error().ToString();
  return path;
}

EngineOptions Options() {
  return {.model = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf",
          .backend = "cpu",
          .settings = {{"model.mmproj", WriteTowers()},
                       {"context.capacity", "512"},
                       {"backend.options.threads", "1"}},
          .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}};
}

Result<std::shared_ptr<Engine>> Open() { return Engine::Open(Options()); }

class NoNotices : public Notices {
  void Note(std::string_view /*text*/) override {}
  void Warn(std::string_view /*text*/) override {}
};

// An engine whose media have this budget.
std::shared_ptr<Engine> OpenWith(std::shared_ptr<MediaBudget> budget) {
  NoNotices notices;
  LoadedModel model = Must(LoadModel(Must(ConfigOf(Options())), {}, notices));
  EngineSetup setup{.plugin_paths = Options().plugin_paths};
  setup.hooks.media_budget = std::move(budget);
  return Must(EngineAccess::Open(std::move(model), setup, notices));
}

json PartOf(const HostileFile& file) {
  const std::string data = Base64(std::as_bytes(std::span(file.bytes)));
  if (file.kind == MediaKind::kSound) {
    return {{"type", "input_audio"}, {"input_audio", {{"data", data}, {"format", "wav"}}}};
  }
  return {{"type", "image_url"}, {"image_url", {{"url", "data:image/png;base64," + data}}}};
}

std::string Chat(const std::vector<json>& parts) {
  const json messages = {{{"role", "user"}, {"content", parts}}};
  return json{{"messages", messages}, {"max_tokens", 1}}.dump();
}

// A server with one model whose media have a budget.
struct BudgetedServer {
  explicit BudgetedServer(RequestLimits limits = {})
      : api(Models(), OpenWith(budget), {.version = "1", .limits = limits}, {}),
        http(Must(HttpServer::Start({}, [this](Exchange& exchange) { api.Handle(exchange); }))) {}
  static std::vector<ServedModel> Models() {
    std::vector<ServedModel> models;
    models.push_back({.id = "tiny", .time = 1, .load = Open});
    return models;
  }
  [[nodiscard]] uint16_t port() const { return http->port(); }

  std::shared_ptr<MediaBudget> budget =
      std::make_shared<MediaBudget>(MediaBudgetLimits{.decoders = 1});
  Api api;
  std::unique_ptr<HttpServer> http;
};

// A picture that gives 64 tokens.
HostileFile GoodPicture() {
  for (HostileFile& file : HostileFiles()) {
    if (std::string_view(file.name) == "png of 16 bits") return file;
  }
  ADD_FAILURE() << "there is no such file";
  return {};
}

TEST(HostileMedia, BeyondTheContextIsRefusedBeforeItIsDecoded) {
  BudgetedServer server;
  const auto held = Must(server.budget->ReserveDecoding(0, {}));  // nobody decodes
  const std::vector<json> nine(9, PartOf(GoodPicture()));         // of 64 tokens
  const std::string answer = Ask(server.port(), "/v1/chat/completions", Chat(nine));
  EXPECT_EQ(StatusOf(answer), 400) << answer;
  EXPECT_THAT(answer, HasSubstr("context_length_exceeded"));
  EXPECT_THAT(answer, HasSubstr("resulted in 576 tokens"));
}

TEST(HostileMedia, ThatWaitsToBeDecodedIsHeldToTheTimeToWait) {
  BudgetedServer server({.queue_timeout = std::chrono::milliseconds(100)});
  {
    const auto held = Must(server.budget->ReserveDecoding(0, {}));
    const std::string answer =
        Ask(server.port(), "/v1/chat/completions", Chat({PartOf(GoodPicture())}));
    EXPECT_EQ(StatusOf(answer), 503) << answer;
    EXPECT_THAT(answer, HasSubstr("queue_timeout"));
  }
  // On a busy machine a picture may wait too long even so.
  int status = 0;
  for (int i = 0; i < 100 && status != 200; ++i) {
    status = StatusOf(Ask(server.port(), "/v1/chat/completions", Chat({PartOf(GoodPicture())})));
  }
  EXPECT_EQ(status, 200);
}

TEST(HostileMedia, OfAClientThatLeavesIsNotDecoded) {
  BudgetedServer server;
  {
    const auto held = Must(server.budget->ReserveDecoding(0, {}));
    Client client(server.port());
    client.Send(Post("/v1/chat/completions", Chat({PartOf(GoodPicture())})));
    client.EndSending();
    EXPECT_EQ(client.ReadAll(), "");
    EXPECT_TRUE(server.http->WaitUntilIdle(std::chrono::seconds(60)));
  }
}

TEST(HostileMedia, GivesTheWholeBudgetBack) {
  BudgetedServer server;
  const std::vector<json> parts(3, PartOf(GoodPicture()));
  EXPECT_EQ(StatusOf(Ask(server.port(), "/v1/chat/completions", Chat(parts))), 200);
  const std::string damaged = GoodPicture().bytes.substr(0, 60);
  std::vector<json> second_bad(2, PartOf(GoodPicture()));
  second_bad[1] = PartOf({"", MediaKind::kPicture, damaged, ""});
  EXPECT_EQ(StatusOf(Ask(server.port(), "/v1/chat/completions", Chat(second_bad))), 400);
  EXPECT_TRUE(server.http->WaitUntilIdle(std::chrono::seconds(60)));
  const MediaBudgetLimits limits;
  std::stop_source now;
  now.request_stop();  // instead of waiting
  EXPECT_TRUE(server.budget->ReserveDecoded(limits.decoded_bytes, now.get_token()).has_value());
  EXPECT_TRUE(server.budget->ReserveDecoding(limits.decoding_bytes, now.get_token()).has_value());
}

TEST(HostileMedia, IsRefusedWithStatusAndCode) {
  std::vector<ServedModel> models;
  models.push_back({.id = "tiny", .time = 1, .load = Open});
  Api api(std::move(models), Must(Open()), {.version = "1"}, {});
  const auto server =
      Must(HttpServer::Start({}, [&](Exchange& exchange) { api.Handle(exchange); }));
  for (const HostileFile& file : HostileFiles()) {
    SCOPED_TRACE(file.name);
    const std::string answer = Ask(server->port(), "/v1/chat/completions", Chat({PartOf(file)}));
    const int status = StatusOf(answer);
    const bool too_large = file.error == "media.too_large";
    EXPECT_EQ(status, file.error.empty() ? 200 : too_large ? 413 : 400) << answer;
    if (file.error.empty()) continue;
    const json error = json::parse(BodyOf(answer)).at("error");
    EXPECT_EQ(error.at("code"), too_large ? "media.too_large" : "invalid_value");
    EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr("[" + std::string(file.error)));
  }
}

}  // namespace
}  // namespace rullama::server
