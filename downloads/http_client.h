// HTTP requests over libcurl, several at once on one thread. Redirects of GET are followed here
// rather than by libcurl, so that each is checked: at most 10, http and https only, never from
// https to http, never from a public address to one that is not, and credentials only to the
// scheme, host and port they are for.
//
// Thread safety: one thread at a time. Callbacks run inside Poll().
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "downloads/pull_plan.h"
#include "downloads/url.h"

namespace rullama::downloads {

// The begin of the answer that is not a redirect.
struct HttpHead {
  long status = 0;  // 0: no answer
  Url url;          // that answered
  int redirects = 0;
  std::map<std::string, std::string> fields = {};  // by lower-case names

  // Empty if there is no such field.
  [[nodiscard]] std::string Field(const std::string& name) const;
};

struct HttpRequest {
  Url url;
  std::vector<std::string> headers = {};  // "Name: value"
  std::string authorization = {};         // the value of the field; empty: none
  std::string method = "GET";             // redirects of others are not followed
  std::string body = {};                  // of POST
  // Both return false to end the request. Called for answers of success only; may be empty.
  std::function<bool(const HttpHead&)> on_head = {};
  std::function<bool(std::string_view)> on_body = {};
};

struct HttpOutcome {
  HttpHead head;
  std::string said;              // the begin of the body of an answer that is not success
  std::optional<Error> refusal;  // pull.redirect, pull.network for TLS: do not try again
  std::string failure;           // the connection failed so: try again
  std::optional<int64_t> retry_after_s = {};
  bool stopped = false;  // by a callback

  [[nodiscard]] bool succeeded() const {
    return !refusal && failure.empty() && head.status >= 200 && head.status < 300;
  }
};

struct HttpClientOptions {
  std::string user_agent;
  int stall_seconds = 30;
  bool insecure = false;
  const char* (*getenv)(const char*);                       // proxies and certificates
  std::function<void(const std::string& text)> trace = {};  // each request, without its query
};

class HttpTransfer;

class HttpClient {
 public:
  explicit HttpClient(HttpClientOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // The transfer ends with the client, or when Drop() takes it.
  HttpTransfer* Start(HttpRequest request);
  void Drop(HttpTransfer* transfer);
  // Waits until something moves, at most `limit`.
  void Poll(std::chrono::milliseconds limit);
  // The outcome, once there is one.
  static const HttpOutcome* OutcomeOf(const HttpTransfer& transfer);

 private:
  friend class HttpTransfer;
  struct Multi;

  void Finish(HttpTransfer& transfer, int code);
  // Whether the transfer continues with another address.
  bool Follow(HttpTransfer& transfer);

  HttpClientOptions options_;
  std::unique_ptr<Multi> multi_;
  std::map<std::string, bool> public_;  // by origin: whether its address is public
};

}  // namespace rullama::downloads
