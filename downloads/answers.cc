#include "downloads/answers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <utility>

#include "core/base/json_reader.h"
#include "core/base/printable.h"

namespace rullama::downloads {
namespace {

constexpr int64_t kMaxRetryAfterSeconds = 30;
constexpr std::chrono::milliseconds kFirstWait{500};
constexpr std::chrono::milliseconds kLongestWait{8000};
constexpr std::chrono::milliseconds kLookEvery{100};
constexpr size_t kMaxShownAnswer = 300;

// The message in the JSON of the Hub or of a registry, else the text itself.
std::string SaidBy(const HttpOutcome& outcome) {
  std::string said = outcome.said;
  if (const auto json = ReadJson(said, {.depth = 16}); json && json->is_object()) {
    const auto error = json->find("error");
    const auto errors = json->find("errors");
    if (error != json->end() && error->is_string()) said = error->get<std::string>();
    if (errors != json->end() && errors->is_array() && !errors->empty() &&
        errors->front().is_object()) {
      const auto message = errors->front().find("message");
      if (message != errors->front().end() && message->is_string()) {
        said = message->get<std::string>();
      }
    }
  }
  if (said.empty()) said = outcome.head.Field("x-error-message");
  if (said.empty()) return {};
  return fmt::format(": \"{}\"", Printable(said.substr(0, kMaxShownAnswer), kMaxShownAnswer));
}

Error Made(tl::unexpected<Error> error) { return std::move(error).value(); }

}  // namespace

Error CancelledPull() {
  return Made(MakeError(ErrorKind::kRuntime, "run.cancelled", "the pull was cancelled"));
}

Error ErrorOfAnswer(const HttpOutcome& outcome, const std::string& what, const std::string& page) {
  const std::string said = SaidBy(outcome);
  const long status = outcome.head.status;
  if (outcome.refusal) return *outcome.refusal;
  if (!outcome.failure.empty() || status == 0) {
    return Made(MakeError(ErrorKind::kIo, "pull.network", "{}: no answer from '{}': {}", what,
                          ShownName(outcome.head.url.Origin()), outcome.failure));
  }
  switch (status) {
    case 401:
    case 403:
      return Made(MakeError(
          ErrorKind::kIo, "pull.unauthorized",
          "{}: the server answers {}{}; if it exists and wants a login, ask for access{}{}, and "
          "set HF_TOKEN to a token of the Hub",
          what, status, said, page.empty() ? "" : " on ", page));
    case 404:
    case 410:
      return Made(MakeError(ErrorKind::kIo, "pull.not_found",
                            "{}: the server answers {}{}; check the name", what, status, said));
    case 412:
      return Made(MakeError(ErrorKind::kIo, "pull.outdated",
                            "{}: the server answers 412{}; use a newer rullama", what, said));
    case 429:
      return Made(MakeError(
          ErrorKind::kIo, "pull.rate_limited", "{}: the server answers 429{}; try again {}", what,
          said, outcome.retry_after_s ? fmt::format("in {} s", *outcome.retry_after_s) : "later"));
    default:
      break;
  }
  if (status == 408 || status >= 500) {
    return Made(MakeError(ErrorKind::kIo, "pull.network", "{}: the server answers {}{}; try later",
                          what, status, said));
  }
  return Made(MakeError(ErrorKind::kIo, "pull.protocol",
                        "{}: the server answers {}{}, expected the file", what, status, said));
}

bool MayRetry(const HttpOutcome& outcome) {
  if (outcome.refusal) return false;
  if (!outcome.failure.empty()) return true;
  const long status = outcome.head.status;
  return status == 408 || status == 429 || status >= 500;
}

std::optional<std::chrono::milliseconds> Backoff::Next(const HttpOutcome& outcome) {
  if (outcome.retry_after_s && *outcome.retry_after_s > kMaxRetryAfterSeconds) return std::nullopt;
  if (failures_ == retries_) return std::nullopt;
  const int doublings = std::min(failures_++, 4);
  if (outcome.retry_after_s) return std::chrono::seconds(*outcome.retry_after_s);
  // Clients that failed together are not to come back together.
  thread_local std::minstd_rand random{std::random_device{}()};
  const double factor = std::uniform_real_distribution<double>(0.8, 1.2)(random);
  const auto wait = std::min(kFirstWait * (1 << doublings), kLongestWait);
  return std::chrono::milliseconds(
      static_cast<int64_t>(static_cast<double>(wait.count()) * factor));
}

bool WaitUnless(const PullHooks& hooks, std::chrono::milliseconds time) {
  const Clock::time_point end = Clock::now() + time;
  for (;;) {
    if (hooks.cancelled()) return false;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return true;
    std::this_thread::sleep_for(std::min(left, kLookEvery));
  }
}

Result<FetchedText> FetchText(HttpClient& client, const HttpRequest& request, size_t max_bytes,
                              const PullOptions& options, const PullHooks& hooks) {
  Backoff backoff(options.retries);
  for (;;) {
    FetchedText fetched;
    HttpRequest once = request;
    once.on_body = [&](std::string_view bytes) {
      fetched.text += bytes;
      return fetched.text.size() <= max_bytes;
    };
    HttpTransfer* const transfer = client.Start(std::move(once));
    while (HttpClient::OutcomeOf(*transfer) == nullptr && !hooks.cancelled()) {
      client.Poll(kLookEvery);
    }
    const HttpOutcome* outcome = HttpClient::OutcomeOf(*transfer);
    const bool done = outcome != nullptr;
    if (done) fetched.outcome = *outcome;
    client.Drop(transfer);
    if (!done) return tl::unexpected(CancelledPull());
    if (fetched.outcome.refusal) return tl::unexpected(*std::move(fetched.outcome.refusal));
    if (fetched.text.size() > max_bytes) {
      return MakeError(ErrorKind::kIo, "pull.protocol",
                       "'{}' answers more than {} bytes; this is not a registry of models",
                       ShownName(request.url.Shown()), max_bytes);
    }
    if (!MayRetry(fetched.outcome)) return fetched;
    const auto wait = backoff.Next(fetched.outcome);
    if (!wait) return fetched;
    if (!WaitUnless(hooks, *wait)) return tl::unexpected(CancelledPull());
  }
}

}  // namespace rullama::downloads
