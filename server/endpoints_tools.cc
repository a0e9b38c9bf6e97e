// The endpoints of the chat page for tools of MCP servers (--mcp). They are for the user who has
// started the server: only with the token that it has printed, and never for a page of another
// origin, which could call without the user's consent.
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "server/endpoints.h"
#include "server/field_reader.h"
#include "server/json_body.h"
#include "server/mcp/tool_servers.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kPatience{2'000};

// Whether the call may continue; else it has been answered.
bool CheckToken(const Services& services, Call& call) {
  const HttpRequest& request = call.request();
  if (!request.foreign_origin.empty()) {
    call.Fail(MakeApiError("origin_forbidden", "only the chat page of this server may use tools"));
    return false;
  }
  if (services.options.tool_servers->Admits(request.tools_token)) return true;
  call.Fail(MakeApiError("tools_forbidden",
                         "the request has not the token of X-Rullama-Tools; open the chat page at "
                         "the address that the server has printed"));
  return false;
}

}  // namespace

void ListTools(const Services& services, Call& call) {
  if (!CheckToken(services, call)) return;
  const mcp::Offer offer = services.options.tool_servers->List(kPatience);
  json tools = json::array();
  for (const mcp::OfferedTool& one : offer.tools) {
    json function = {{"name", one.name}, {"parameters", one.tool.schema}};
    if (!one.tool.description.empty()) function["description"] = one.tool.description;
    tools.push_back({{"server", one.server},
                     {"name", one.tool.name},
                     {"tool", {{"type", "function"}, {"function", std::move(function)}}}});
  }
  json failures = json::array();
  for (const mcp::ServerFailure& failure : offer.failures) {
    failures.push_back({{"server", failure.server}, {"text", failure.text}});
  }
  call.SendJson(
      {{"tools", std::move(tools)}, {"failures", failures}, {"left_out", offer.left_out}});
}

void CallTool(const Services& services, Call& call) {
  if (!CheckToken(services, call)) return;
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  FieldReader fields(*body);
  const auto name = fields.Text("name");
  const json* arguments = fields.Object("arguments");
  if (!name) fields.Fail("missing_required_parameter", "name", "is missing; name the tool");
  if (fields.error()) return call.Fail(*fields.error());
  mcp::ToolServers& servers = *services.options.tool_servers;
  if (!servers.Has(*name)) {
    return call.Fail(MakeApiError("tool_not_found", "no tool of this name is offered", "name"));
  }
  std::atomic<bool> left = false;
  call.OnLeave([&left] { left = true; });
  const auto outcome = servers.Call(*name, arguments == nullptr ? json::object() : *arguments,
                                    [&left] { return left.load(); });
  call.OnLeave({});
  // An error is a result for the model, too.
  call.SendJson({{"content", outcome ? outcome->text : outcome.error().ToString()},
                 {"failed", !outcome || outcome->failed}},
                fields.Unknown());
}

}  // namespace rullama::server
