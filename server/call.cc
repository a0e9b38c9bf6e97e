#include "server/call.h"

#include <algorithm>
#include <utility>

namespace rullama::server {
namespace {

constexpr size_t kMaxIgnoredNames = 20;
constexpr size_t kMaxIgnoredNameBytes = 160;

// Leaves out the middle of a name that is too long: it begins with the member of the body and ends
// with the keyword.
std::string Shortened(const std::string& name) {
  if (name.size() <= kMaxIgnoredNameBytes) return name;
  constexpr std::string_view kGap = "...";
  constexpr size_t kHead = kMaxIgnoredNameBytes / 2 - kGap.size();
  constexpr size_t kTail = kMaxIgnoredNameBytes - kHead - kGap.size();
  return name.substr(0, kHead) + std::string(kGap) + name.substr(name.size() - kTail);
}

}  // namespace

std::vector<HeaderField> IgnoredFields(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMaxIgnoredNames); ++i) {
    std::string name = Shortened(names[i]);
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c <= ' ' || c > '~' || c == ','; }, '?');
    list += (i == 0 ? "" : ", ") + name;
  }
  if (names.size() > kMaxIgnoredNames) list += ", ...";
  return {{"X-Rullama-Ignored", list}};
}

bool Call::Send(HttpAnswer answer) {
  record_.status = answer.status;
  NameRequest(dialect_, request().request_id, answer.fields);
  return exchange_.Send(std::move(answer));
}

bool Call::SendJson(const nlohmann::json& body, const std::vector<std::string>& ignored) {
  return Send({.status = 200,
               .content_type = "application/json",
               .body = Dump(body),
               .fields = IgnoredFields(ignored)});
}

void Call::Fail(const ApiError& error) {
  if (error.status == 0) return;
  Send({.status = error.status,
        .content_type = "application/json",
        .body = ErrorBody(dialect_, error, request().request_id),
        .fields = error.fields});
}

bool Call::Begin(HttpAnswer head) {
  record_.status = head.status;
  NameRequest(dialect_, request().request_id, head.fields);
  return exchange_.Begin(std::move(head));
}

}  // namespace rullama::server
