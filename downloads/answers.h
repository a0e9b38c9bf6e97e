// What the answers of a server mean for a pull: whether to ask again, and which error to report.
// Thread safety: value types and pure functions, but FetchText(), which is a pull's own thread's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "downloads/http_client.h"

namespace rullama::downloads {

// Error run.cancelled (kRuntime).
Error CancelledPull();

// The error of an answer that is not success: pull.unauthorized, pull.not_found, pull.outdated,
// pull.rate_limited, pull.network, pull.protocol. `what` is the subject of the message; `page` is
// where people ask for access, or empty.
Error ErrorOfAnswer(const HttpOutcome& outcome, const std::string& what, const std::string& page);

// Whether the same request may succeed later.
bool MayRetry(const HttpOutcome& outcome);

// The time between one failure and the next try: 0.5, 1, 2, 4, 8 s and so on, give or take a fifth,
// or what the server asks for.
class Backoff {
 public:
  explicit Backoff(int retries) : retries_(retries) {}

  void Progressed() { failures_ = 0; }
  // Nothing if the outcome is final: no try is left, or the server asks for too long a time.
  std::optional<std::chrono::milliseconds> Next(const HttpOutcome& outcome);

 private:
  int retries_;
  int failures_ = 0;
};

// Waits, and returns false if the pull is cancelled meanwhile.
bool WaitUnless(const PullHooks& hooks, std::chrono::milliseconds time);

// A whole answer of at most `max_bytes`, after as many tries as the options allow. The outcome is
// that of the last try. Errors: run.cancelled, pull.redirect, pull.network, pull.protocol for an
// answer that is too long.
struct FetchedText {
  HttpOutcome outcome;
  std::string text;
};
Result<FetchedText> FetchText(HttpClient& client, const HttpRequest& request, size_t max_bytes,
                              const PullOptions& options, const PullHooks& hooks);

}  // namespace rullama::downloads
