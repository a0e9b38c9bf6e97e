// One request while it is handled: the way to answer it, who asks, and the facts for the log and
// the metrics.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "server/api_error.h"
#include "server/http/exchange.h"

namespace rullama::server {

// The members of a request that one line of the log shows. None holds text of the request.
struct CallRecord {
  std::string_view endpoint = "other";  // of the table of routes
  int status = 0;                       // 0: nothing was answered
  std::string model;
  std::string client = "-";  // the name of its key
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t drawn_tokens = 0;
  double queue_seconds = 0;
  double first_seconds = 0;       // until the first token
  std::string_view reason = "-";  // why the answer ended
};

// Thread safety: as Exchange. Answers exactly once.
class Call {
 public:
  explicit Call(Exchange& exchange)
      : exchange_(exchange),
        dialect_(
            DialectOf(exchange.request().path, !exchange.request().anthropic_version.empty())) {}

  [[nodiscard]] const HttpRequest& request() const { return exchange_.request(); }
  [[nodiscard]] Dialect dialect() const { return dialect_; }
  [[nodiscard]] Clock::time_point begin() const { return begin_; }
  [[nodiscard]] CallRecord& record() { return record_; }
  // Which key was given; 0 if none is asked for.
  [[nodiscard]] uint64_t client() const { return client_; }
  void set_client(uint64_t client) { client_ = client; }
  // The lasting name of its key; empty if none is asked for.
  [[nodiscard]] const std::string& owner() const { return owner_; }
  // The same for saved slots (KeyOwner::without_secret).
  [[nodiscard]] const std::string& slot_owner() const { return slot_owner_; }
  void set_owner(std::string owner, std::string slot_owner) {
    owner_ = std::move(owner);
    slot_owner_ = std::move(slot_owner);
  }

  bool Send(HttpAnswer answer);
  bool SendJson(const nlohmann::json& body, const std::vector<std::string>& ignored = {});
  void Fail(const ApiError& error);

  bool Begin(HttpAnswer head);
  bool Write(std::string_view bytes) { return exchange_.Write(bytes); }
  bool End() { return exchange_.End(); }
  void OnLeave(std::function<void()> left) { exchange_.OnLeave(std::move(left)); }

 private:
  Exchange& exchange_;
  Dialect dialect_;
  Clock::time_point begin_ = Clock::now();
  CallRecord record_;
  uint64_t client_ = 0;
  std::string owner_;
  std::string slot_owner_;
};

// The field X-Rullama-Ignored with the names of members that mean nothing here, at most 20 of them,
// or no field.
std::vector<HeaderField> IgnoredFields(const std::vector<std::string>& names);

}  // namespace rullama::server
