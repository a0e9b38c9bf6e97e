// Answers requests: finds the endpoint, asks for the key, keeps the log and the metrics.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "server/api_keys.h"
#include "server/call.h"
#include "server/http/exchange.h"
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
  // Whether the answer to a request with this head depends on its body: its key is right, and there
  // is such an endpoint. Does not block.
  [[nodiscard]] bool WantsBody(const HttpRequest& head);

  // From then on /health says so, requests for answers are refused, and those that wait for a slot
  // are ended: 503 shutting_down.
  void Drain() {
    running_.Drain();
    models_.StopWaiting();
  }
  // Ends all answers.
  void CancelAll() { running_.CancelAll(); }
  // As Models::Finish(), once nothing calls Handle() any more.
  void Finish() { models_.Finish(); }

  // As Models::failure().
  [[nodiscard]] std::optional<Error> failure() const { return models_.failure(); }

 private:
  void Answer(Call& call);
  void AnswerPreflight(Call& call);
  // The owner of the key of a request, or nothing for a wrong one; without keys anybody.
  std::optional<KeyOwner> OwnerOf(const HttpRequest& request);
  // Whether the call may continue; else it has been answered.
  bool CheckKey(Call& call);
  // Waits until it is the turn of one more wrong key to be answered.
  void DelayWrongKey();
  void Log(Call& call);
  void LogPrompt(Call& call);

  ApiOptions options_;
  std::mutex keys_mutex_;  // guards both that follow
  std::shared_ptr<const ApiKeys> keys_;
  Clock::time_point last_wrong_key_;  // when the last one of those that wait is answered
  Metrics metrics_;
  Models models_;
  RunningRequests running_;
  Services services_;
};

}  // namespace rullama::server
