// The endpoints of the slots.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "server/answer_run.h"
#include "server/endpoints.h"
#include "server/field_reader.h"
#include "server/http/query.h"
#include "server/json_body.h"
#include "server/slot_folder.h"

namespace rullama::server {
namespace {

using nlohmann::json;

json ShownSlot(const ModelSlots& model, size_t index) {
  const SlotActivity& slot = model.slots[index];
  json shown = {{"id", index},           {"id_task", slot.task},       {"n_ctx", model.capacity},
                {"n_past", slot.tokens}, {"is_processing", slot.busy}, {"speculative", slot.drafts},
                {"model", model.id}};
  if (!slot.busy) return shown;
  json params = slot.note ? json::parse(*slot.note) : json::object();
  params["seed"] = slot.seed;
  shown["params"] = std::move(params);
  shown["next_token"] = {{"has_next_token", slot.remaining > 0},
                         {"n_remain", slot.remaining},
                         {"n_decoded", slot.drawn}};
  return shown;
}

// The action that a request asks for, and its slot.
struct SlotAction {
  std::string action;
  int32_t slot = 0;
  std::string model;
  std::string file;
};

// The number after "/slots/"; nothing if there is none.
std::optional<int32_t> SlotIn(std::string_view path) {
  constexpr std::string_view kFolder = "/slots/";
  if (!path.starts_with(kFolder)) return std::nullopt;
  path.remove_prefix(kFolder.size());
  int32_t slot = 0;
  const auto [end, failure] = std::from_chars(path.data(), path.data() + path.size(), slot);
  const bool all = end == path.data() + path.size() && !path.starts_with('-');
  return all && failure == std::errc() ? std::optional(slot) : std::nullopt;
}

// The value of a member of the query that may be there once.
ApiResult<std::string> OnlyValue(const std::string& query, std::string_view name) {
  size_t count = 0;
  const std::string key = fmt::format("{}=", name);
  for (std::string_view rest = query; !rest.empty();) {
    const std::string_view member = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(member.size() + 1, rest.size()));
    if (member.starts_with(key)) ++count;
  }
  if (count > 1) {
    return tl::unexpected(MakeApiError(
        "invalid_value", fmt::format("'{}' is given {} times, expected once", name, count),
        std::string(name)));
  }
  return QueryValue(query, name).value_or("");
}

std::string ReadFileName(FieldReader& fields) {
  const auto name = fields.Text("filename");
  if (!name) {
    fields.Fail("missing_required_parameter", "filename", "is missing; name the file");
  } else if (!IsSlotFileName(*name)) {
    fields.Fail("invalid_value", "filename",
                "is not the name of a file: expected 1 to 128 letters, digits, '.', '-' and '_', "
                "and no '.' at its beginning");
  }
  return name.value_or("");
}

ApiResult<SlotAction> ReadAction(const Services& services, const HttpRequest& request) {
  const auto slot = SlotIn(request.path);
  if (!slot) {
    return tl::unexpected(MakeApiError("route_not_found", "the path has no number of a slot"));
  }
  auto action = OnlyValue(request.query, "action");
  if (!action) return tl::unexpected(action.error());
  const bool erases = *action == "erase";
  if (!erases && *action != "save" && *action != "restore") {
    return tl::unexpected(
        MakeApiError("invalid_value", "'action' is not one of save, restore, erase", "action"));
  }
  if (!erases && !services.options.slot_folder) {
    return tl::unexpected(
        MakeApiError("not_implemented",
                     "slots are not saved here; name a folder for them with --slot-save-path"));
  }
  json body = json::object();
  if (!request.body.empty()) {
    auto parsed = ParseBody(request.body);
    if (!parsed) return tl::unexpected(parsed.error());
    body = *std::move(parsed);
  }
  FieldReader fields(body);
  SlotAction out{.action = *std::move(action), .slot = *slot, .model = {}, .file = {}};
  out.model = fields.Text("model").value_or(QueryValue(request.query, "model").value_or(""));
  if (!erases) out.file = ReadFileName(fields);
  if (fields.error()) return tl::unexpected(*fields.error());
  return out;
}

// An error of the engine without the paths of this machine.
ApiError SlotError(const Services& services, const Error& error) {
  ApiError out = FromEngine(error);
  if (error.id == "slot.file") out.param = "filename";
  if (!error.id.starts_with("io.")) return out;
  if (services.options.log) services.options.log(error.ToString());
  out.message = "the file of the slot cannot be read or written; the log of the server says why";
  return out;
}

// Performs the action and returns the answer.
Result<json> Perform(const Services& services, const Call& call, Engine& engine,
                     const SlotAction& action, const std::stop_token& stop) {
  const uint64_t client = call.client();
  const Clock::time_point begin = Clock::now();
  if (action.action == "erase") {
    RL_ASSIGN_OR_RETURN(const int64_t erased,
                        engine.EraseSlot(action.slot, client, call.owner(), stop));
    return json{{"id_slot", action.slot}, {"n_erased", erased}};
  }
  SlotFolder& folder = *services.options.slot_folder;
  std::optional<SlotFolder::Writing> writing;
  const SlotFile file{.path = folder.PathOf(action.file).string(),
                      .owner = call.slot_owner(),
                      .room = [&] { return writing.emplace(folder, action.file).room(); }};
  const bool saves = action.action == "save";
  RL_ASSIGN_OR_RETURN(const SlotTransfer done,
                      saves ? engine.SaveSlot(action.slot, client, file, stop)
                            : engine.RestoreSlot(action.slot, client, file, stop));
  return json{{"id_slot", action.slot},
              {"filename", action.file},
              {saves ? "n_saved" : "n_restored", done.tokens},
              {saves ? "n_written" : "n_read", done.bytes},
              {"timings", {{saves ? "save_ms" : "restore_ms", SecondsSince(begin) * 1e3}}}};
}

// The same, for as long as the client waits and the server lets it.
void PerformFor(const Services& services, Call& call, Engine& engine, const SlotAction& action) {
  auto running = services.running.Admit(call.client(), 1);
  if (!running) return call.Fail(running.error());
  std::stop_source stop;
  (*running)->SetCancel([&stop] { stop.request_stop(); });
  call.OnLeave([&running] { (*running)->Cancel(CancelCause::kLeft); });
  const auto done = Perform(services, call, engine, action, stop.get_token());
  call.OnLeave({});
  (*running)->SetCancel({});
  if (done) {
    call.SendJson(*done);
    return;
  }
  if (const CancelCause cause = (*running)->cause(); cause != CancelCause::kNone) {
    NoteCancel(services, call, cause);
    return call.Fail((*running)->Failure());
  }
  call.Fail(SlotError(services, done.error()));
}

}  // namespace

void Slots(const Services& services, Call& call) {
  if (!services.options.slots) {
    return call.Fail(MakeApiError("not_implemented",
                                  "slots are not shown here; set server.slots_endpoint to true"));
  }
  const std::vector<ModelSlots> models = services.models.Slots();
  json list = json::array();
  bool all_busy = !models.empty();  // a model that is not loaded gets free slots
  for (const ModelSlots& model : models) {
    for (size_t i = 0; i < model.slots.size(); ++i) list.push_back(ShownSlot(model, i));
    all_busy = all_busy && std::ranges::all_of(model.slots, &SlotActivity::busy);
  }
  if (all_busy && QueryValue(call.request().query, "fail_on_no_slot") == "1") {
    return call.Fail(MakeApiError("no_free_slot", "all slots have a request; try again later"));
  }
  call.SendJson(list);
}

void ActOnSlot(const Services& services, Call& call) {
  const auto action = ReadAction(services, call.request());
  if (!action) return call.Fail(action.error());
  const auto model = AcquireModel(services, call, action->model);
  if (!model) return call.Fail(model.error());
  const int64_t slots = model->engine->info().slots;
  if (action->slot >= slots) {
    return call.Fail(MakeApiError(
        "invalid_value",
        fmt::format("there is no slot {}, expected 0 to {}", action->slot, slots - 1), "id_slot"));
  }
  PerformFor(services, call, *model->engine, *action);
}

}  // namespace rullama::server
