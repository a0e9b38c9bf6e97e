// A server of the tiny model with a context of 8192 tokens.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "server/api.h"
#include "server/http/http_server.h"

namespace rullama::server {

// Thread safety: none.
class LongModelServer {
 public:
  LongModelServer() {
    std::vector<ServedModel> models;
    models.push_back({.id = "tiny", .time = 1, .load = Open});
    api_ = std::make_unique<Api>(std::move(models), Must(Open()), ApiOptions{.version = "1"},
                                 ApiKeys());
    server_ = Must(HttpServer::Start({}, [this](Exchange& exchange) { api_->Handle(exchange); }));
  }

  [[nodiscard]] uint16_t port() const { return server_->port(); }

 private:
  // Returns the path of the model.
  static std::string WriteModel() {
    std::ifstream file(RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf", std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(file), {});
    const std::string key = "gemma4.context_length";
    const uint32_t length = 8192;
    // The key is followed by the type of the value.
    std::memcpy(bytes.data() + bytes.find(key) + key.size() + sizeof(uint32_t), &length,
                sizeof(length));
    std::string path = ::testing::TempDir() + "/long_model.gguf";
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static Result<std::shared_ptr<Engine>> Open() {
    return Engine::Open({.model = WriteModel(),
                         .backend = "cpu",
                         .settings = {{"context.capacity", "8192"},
                                      {"context.slots", "1"},
                                      {"backend.options.threads", "1"}},
                         .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}});
  }

  std::unique_ptr<Api> api_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace rullama::server
