// Hostile pictures and sounds over HTTP: each is refused with its status and code, or taken.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/base/must_test_util.h"
#include "media/hostile_files_test_util.h"
#include "models/registry.h"
#include "server/api.h"
#include "server/base64.h"
#include "server/http_server.h"
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

Result<std::shared_ptr<Engine>> Open() {
  return Engine::Open({.model = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf",
                       .backend = "cpu",
                       .settings = {{"model.mmproj", WriteTowers()},
                                    {"context.capacity", "512"},
                                    {"backend.options.threads", "1"}},
                       .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}});
}

json PartOf(const HostileFile& file) {
  const std::string data = Base64(std::as_bytes(std::span(file.bytes)));
  if (file.kind == MediaKind::kSound) {
    return {{"type", "input_audio"}, {"input_audio", {{"data", data}, {"format", "wav"}}}};
  }
  return {{"type", "image_url"}, {"image_url", {{"url", "data:image/png;base64," + data}}}};
}

TEST(HostileMedia, IsRefusedWithStatusAndCode) {
  std::vector<ServedModel> models;
  models.push_back({.id = "tiny", .time = 1, .load = Open});
  Api api(std::move(models), Must(Open()), {.version = "1"}, {});
  const auto server =
      Must(HttpServer::Start({}, [&](Exchange& exchange) { api.Handle(exchange); }));
  for (const HostileFile& file : HostileFiles()) {
    SCOPED_TRACE(file.name);
    const json messages = {{{"role", "user"}, {"content", {PartOf(file)}}}};
    const std::string answer = Ask(server->port(), "/v1/chat/completions",
                                   json{{"messages", messages}, {"max_tokens", 1}}.dump());
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
