// /api/pull of the Ollama API, where server.allow_pull is on.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "server/endpoints.h"
#include "server/field_reader.h"
#include "server/json_body.h"

namespace rullama::server {
namespace {

using nlohmann::json;

json StateAsJson(const PullState& state) {
  json record = {{"status", state.status}};
  if (state.digest.empty()) return record;
  record["digest"] = state.digest;
  record["total"] = state.total;
  record["completed"] = state.completed;
  return record;
}

ApiError AsApiError(const Error& error) {
  const bool name = error.id == "pull.name" || error.id == "pull.insecure";
  const std::string_view code = name                           ? "bad_request"
                                : error.id == "pull.not_found" ? "model_not_found"
                                                               : "internal";
  return MakeApiError(code, error.ToString());
}

}  // namespace

void OllamaPull(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  FieldReader fields(*body);
  const auto name = fields.Text("name");
  const auto model = fields.Text("model");
  const std::string asked = model.value_or(name.value_or(""));
  if (asked.empty()) {
    fields.Fail("missing_required_parameter", "model", "is missing; name the model");
  }
  const bool streams = fields.Boolean("stream").value_or(true);
  if (fields.error()) return call.Fail(*fields.error());
  // A name that cannot be one is refused before the stream begins.
  bool begun = false;
  const auto write = [&](const json& record) {
    if (!std::exchange(begun, true)) {
      call.Begin({.status = 200,
                  .content_type = "application/x-ndjson",
                  .body = {},
                  .fields = IgnoredFields(fields.Unknown())});
    }
    return call.Write(Dump(record) + "\n");
  };
  const Status pulled = services.options.pull(
      asked, [&](const PullState& state) { return !streams || write(StateAsJson(state)); });
  if (!streams) {
    if (!pulled) return call.Fail(AsApiError(pulled.error()));
    return static_cast<void>(call.SendJson({{"status", "success"}}, fields.Unknown()));
  }
  if (!pulled && !begun) return call.Fail(AsApiError(pulled.error()));
  write(pulled ? json{{"status", "success"}} : json{{"error", pulled.error().ToString()}});
  call.End();
}

}  // namespace rullama::server
