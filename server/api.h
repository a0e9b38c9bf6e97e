// Answers requests: finds the endpoint, asks for the key, keeps the log and the metrics.
#pragma once

#include <memory>
#include <mutex>

#include "server/api_keys.h"
#include "server/call.h"
#include "server/exchange.h"
#include "server/metrics.h"
#include "server/model_host.h"
#include "server/running_requests.h"
#include "server/services.h"

namespace rullama::server {

// Thread safety: all member functions from any thread.
class Api {
 public:
  // `loader` opens the model again after it has been unloaded.
  Api(std::shared_ptr<Engine> engine, ServedModel model, ModelHost::Loader loader,
      ApiOptions options, ApiKeys keys = {});

  // From the next request on, these are the keys.
  void ReplaceKeys(ApiKeys keys);

  // Answers one request.
  void Handle(Exchange& exchange);

  // From then on /health says so, requests for answers are refused, and those that wait for a slot
  // are ended: 503 shutting_down.
  void Drain() { running_.Drain(); }
  // Ends all answers.
  void CancelAll() { running_.CancelAll(); }

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
  ModelHost model_;
  RunningRequests running_;
  Services services_;
};

}  // namespace rullama::server
