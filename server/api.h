// The endpoints: finds the handler of a request in a table, and answers with an engine.
#pragma once

#include <atomic>
#include <ctime>
#include <memory>
#include <string>

#include "engine/api/engine.h"
#include "server/api_error.h"
#include "server/exchange.h"

namespace rullama::server {

struct ApiOptions {
  std::string model_id;  // the name under which the model is served
  std::time_t model_time = 0;
  std::string version;
  int64_t max_queue = 64;  // requests that wait for a slot
};

// Thread safety: Handle() from any thread. Requests share the slots of the engine.
class Api {
 public:
  Api(std::shared_ptr<Engine> engine, ApiOptions options);

  // Answers one request.
  void Handle(Exchange& exchange);

  // From then on /health says so, and requests for answers are refused: 503 shutting_down.
  void Drain() { draining_.store(true); }

 private:
  struct Route;
  static const Route kRoutes[];

  void Health(Exchange& exchange);
  void Models(Exchange& exchange);
  void Model(Exchange& exchange);
  void ChatCompletions(Exchange& exchange);
  void Completions(Exchange& exchange);
  void Embeddings(Exchange& exchange);
  void Tokenize(Exchange& exchange);
  void Detokenize(Exchange& exchange);

  void Complete(Exchange& exchange, bool chat);
  // 404 if `model` is neither empty nor the one that is served.
  ApiResult<void> CheckModel(const std::string& model) const;
  // 429 if too many requests wait, 503 while draining.
  ApiResult<void> CheckLoad() const;

  std::shared_ptr<Engine> engine_;
  ApiOptions options_;
  std::atomic<int64_t> running_ = 0;  // requests that have a slot or wait for one
  std::atomic<bool> draining_ = false;
};

}  // namespace rullama::server
