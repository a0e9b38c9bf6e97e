#include "core/plugin/call_status.h"

#include <cstring>

#include "core/plugin/host_table.h"

namespace rullama {
namespace {

// The text of the record; if it has none, a text that says so.
std::string TextOf(const rl_error& error) {
  const size_t size = ::strnlen(error.message, RL_ERROR_TEXT);
  if (size == 0) return "it gave no reason";
  return Printable({error.message, size}, RL_ERROR_TEXT);
}

std::string OpText(const CallSite& site, uint32_t op_index) {
  if (op_index == RL_NO_OP) return {};
  if (site.graph == nullptr) return fmt::format(" at op {}", op_index);
  if (op_index >= site.graph->ops.size()) {
    return fmt::format(" at op {} (of {})", op_index, site.graph->ops.size());
  }
  const Op& op = site.graph->ops[op_index];
  const std::string_view result = op.results.empty()
                                      ? std::string_view()
                                      : std::string_view(site.graph->value(op.results[0]).name);
  return fmt::format(" at op {} ({} '{}')", op_index, NameOf(op.kind), result);
}

struct CodeRow {
  rl_code code;
  ErrorKind kind;
  std::string_view id;
  std::string_view words;
};

constexpr CodeRow kCodes[] = {
    {RL_INVALID_ARGUMENT, ErrorKind::kBackend, "device.invalid_argument", "refused an argument"},
    {RL_UNSUPPORTED, ErrorKind::kBackend, "device.unsupported", "is not able to do this"},
    {RL_OUT_OF_MEMORY, ErrorKind::kOutOfMemory, "device.out_of_memory", "is out of memory"},
    {RL_DEVICE_LOST, ErrorKind::kBackend, "device.lost", "lost the device"},
    {RL_CANCELLED, ErrorKind::kRuntime, "run.cancelled", "was cancelled"},
    {RL_UNAVAILABLE, ErrorKind::kBackend, "device.unavailable", "is not available"},
    {RL_INTERNAL, ErrorKind::kBackend, "device.internal", "failed"},
};

}  // namespace

rl_error EmptyError() {
  rl_error error{};
  error.struct_size = sizeof(error);
  error.op_index = RL_NO_OP;
  return error;
}

std::string Describe(const CallSite& site) {
  if (site.device.empty()) return fmt::format("plugin '{}': {}", site.plugin, site.function);
  return fmt::format("plugin '{}': device '{}': {}", site.plugin, site.device, site.function);
}

Error ContractError(const CallSite& site, std::string_view what) {
  return {ErrorKind::kBackend, "plugin.contract",
          fmt::format("{} {}; this is a bug in the plugin", Describe(site), what)};
}

Status CallStatus(const CallSite& site, int32_t code, const rl_error& error) {
  if (code == RL_OK) return OkStatus();
  for (const CodeRow& row : kCodes) {
    if (row.code != code) continue;
    std::string message = fmt::format("{} {}{}: {}", Describe(site), row.words,
                                      OpText(site, error.op_index), TextOf(error));
    if (error.device_code != 0) message += fmt::format(" (driver code {})", error.device_code);
    return tl::unexpected<Error>(Error{row.kind, std::string(row.id), std::move(message)});
  }
  return tl::unexpected<Error>(ContractError(
      site,
      fmt::format("returned {}, which is not an rl_code, with the text: {}", code, TextOf(error))));
}

}  // namespace rullama
