// Answers requests: finds the endpoint, asks for the key, keeps the log and the metrics.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/api_keys.h"
#include "server/call.h"
#include "server/exchange.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/running_requests.h"
#include "server/services.h"

namespace rullama::server {

// Thread safety: all member functions from any thread.
class Api {
 public:
  // `first`: the first of `models`, loaded.
  Api(std::vector<ServedModel> models, std::shared_ptr<Engine> first, ApiOptions options,
      ApiKeys keys = {});

  // From the next request on, these are the keys.
  void ReplaceKeys(ApiKeys keys);

  // Answers one request.
  void Handle(Exchange& exchange);

  // From then on /health says so, requests for answers are refused, and those that wait for a slot
  // are ended: 503 shutting_down.
  void Drain() {
    running_.Drain();
    models_.StopWaiting();
  }
  // Ends all answers.
  void CancelAll() { running_.CancelAll(); }

  // As Models::failure().
  [[nodiscard]] std::optional<Error> failure() const { return models_.failure(); }

 private:
  void Answer(Call& call);
  void AnswerPreflight(Call& call);
  // Whether the call may go on; else it has been answered.
  bool CheckKey(Call& call);
  void Log(Call& call);
  void LogPrompt(Call& call);

  ApiOptions options_;
  std::mutex keys_mutex_;  // guards keys_
  std::shared_ptr<const ApiKeys> keys_;
  Metrics metrics_;
  Models models_;
  RunningRequests running_;
  Services services_;
};

}  // namespace rullama::server
