#include "cli/commands/serve_tools.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "core/base/printable.h"
#include "downloads/http_client.h"
#include "server/tool_fields.h"

namespace rullama::cli {
namespace {

using server::mcp::HttpAnswerOfServer;
using server::mcp::HttpRequestToServer;

constexpr size_t kTokenBytes = 24;
// A tool may think for long before it says anything; its call has a limit of its own.
constexpr int kStallSeconds = 3600;

const char* Variable(const char* name) { return std::getenv(name); }

HttpAnswerOfServer AnswerOf(const downloads::HttpHead& head) {
  return {.status = head.status, .fields = head.fields};
}

tl::unexpected<Error> HttpFailure(const std::string& url, std::string_view what) {
  return MakeError(ErrorKind::kRuntime, "mcp.http", "{}: {}",
                   ShownName(url.substr(0, url.find('?'))), what);
}

// Over libcurl, with a connection of its own for each request.
Result<HttpAnswerOfServer> SendToServer(
    const HttpRequestToServer& request,
    const std::function<bool(const HttpAnswerOfServer&)>& on_head,
    const std::function<bool(std::string_view)>& on_body) {
  const auto url = downloads::ParseUrl(request.url);
  if (!url) return HttpFailure(request.url, "is not an address of http or https");
  downloads::HttpClient client({.user_agent = "rullama/" RULLAMA_VERSION,
                                .stall_seconds = kStallSeconds,
                                .insecure = true,
                                .getenv = &Variable});
  downloads::HttpRequest sent{
      .url = *url,
      .method = request.method,
      .body = request.body,
      .on_head = [&](const downloads::HttpHead& head) { return on_head(AnswerOf(head)); },
      .on_body = on_body};
  for (const auto& [name, value] : request.headers) {
    sent.headers.push_back(fmt::format("{}: {}", name, value));
  }
  const downloads::HttpTransfer* transfer = client.Start(std::move(sent));
  const downloads::HttpOutcome* outcome = nullptr;
  while ((outcome = downloads::HttpClient::OutcomeOf(*transfer)) == nullptr) {
    RL_RETURN_IF_ERROR(request.wait.Check());
    client.Poll(server::mcp::kLookAtWait);
  }
  if (outcome->refusal) return HttpFailure(request.url, outcome->refusal->message);
  if (!outcome->failure.empty()) return HttpFailure(request.url, outcome->failure);
  HttpAnswerOfServer answer = AnswerOf(outcome->head);
  answer.said = outcome->said;
  return answer;
}

Result<std::string> MakeToken() {
  std::array<unsigned char, kTokenBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return MakeError(ErrorKind::kIo, "io.random", "the system has no random numbers");
  }
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

}  // namespace

Result<ServedTools> ReadTools(const std::string& file, Console& console) {
  RL_ASSIGN_OR_RETURN(const server::mcp::ToolServerList list,
                      server::mcp::ReadToolServers(file, &Variable));
  for (const std::string& name : list.ignored) {
    console.Warn(fmt::format("'{}' of '{}' has no effect", ShownName(name), ShownName(file)));
  }
  ServedTools tools;
  RL_ASSIGN_OR_RETURN(tools.token, MakeToken());
  tools.servers = std::make_shared<server::mcp::ToolServers>(
      list.servers,
      server::mcp::ToolServerOptions{
          .version = RULLAMA_VERSION,
          .send = &SendToServer,
          .log = [&console](std::string_view line) { console.Warn(line); }},
      server::kMaxTools, tools.token);
  return tools;
}

std::string PageAddress(const std::string& host, int port, const std::string& token) {
  // Addresses that stand for all of a machine are not those of a page.
  const bool any = host == "0.0.0.0" || host == "::";
  const std::string name = any                           ? "127.0.0.1"
                           : host.find(':') == host.npos ? host
                                                         : "[" + host + "]";
  return fmt::format("http://{}:{}/#tools={}", name, port, token);
}

}  // namespace rullama::cli
