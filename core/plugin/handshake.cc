#include "core/plugin/handshake.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/plugin/call_guard.h"
#include "core/plugin/call_status.h"
#include "core/plugin/host_table.h"

namespace rullama {
namespace {

// A table far larger than any we know is not a newer minor version but an uninitialised field.
constexpr uint32_t kMaxTableBytes = 1 << 16;
constexpr uint64_t kMaxNameBytes = 64;

tl::unexpected<Error> AbiError(std::string_view origin, const rl_plugin_v1& table,
                               std::string_view what) {
  return MakeError(ErrorKind::kBackend, "plugin.abi",
                   "plugin '{}' was built for ABI version {}.{}, this rullama speaks {}.{}: {}; "
                   "rebuild the plugin against this version's SDK",
                   origin, table.abi_major, table.abi_minor, RL_ABI_MAJOR, RL_ABI_MINOR, what);
}

// The table as far as the plugin says it goes. Its first fields are read alone, before the size is
// believed.
Result<rl_plugin_v1> CopyTable(std::string_view origin, const rl_plugin_v1* theirs) {
  rl_plugin_v1 table{};
  std::memcpy(&table, theirs, offsetof(rl_plugin_v1, name));
  if (table.abi_major == 0) {
    return AbiError(origin, table, "its version fields are not set");
  }
  if (table.abi_major != RL_ABI_MAJOR) return AbiError(origin, table, "the versions do not match");
  const uint32_t size = table.struct_size;
  if (size < kPluginTableSizeV10 || size > kMaxTableBytes) {
    return AbiError(
        origin, table,
        fmt::format("its table claims {} bytes, expected at least {}", size, kPluginTableSizeV10));
  }
  std::memcpy(&table, theirs, std::min<size_t>(size, sizeof(table)));
  return table;
}

struct Member {
  std::string_view name;
  bool present;
};

Status CheckMembers(const CallSite& site, const rl_plugin_v1& table) {
#define RL_MEMBER(member) \
  { #member, table.member != nullptr }
  const Member members[] = {
      RL_MEMBER(device_count),  RL_MEMBER(device_info),  RL_MEMBER(device_open),
      RL_MEMBER(device_close),  RL_MEMBER(query_ops),    RL_MEMBER(weight_layout),
      RL_MEMBER(weight_create), RL_MEMBER(weight_free),  RL_MEMBER(buffer_create),
      RL_MEMBER(buffer_free),   RL_MEMBER(buffer_write), RL_MEMBER(buffer_read),
      RL_MEMBER(plan_compile),  RL_MEMBER(plan_execute), RL_MEMBER(plan_stats),
      RL_MEMBER(plan_free),     RL_MEMBER(device_wait),  RL_MEMBER(shutdown),
  };
#undef RL_MEMBER
  for (const Member& member : members) {
    if (member.present) continue;
    return tl::unexpected<Error>(
        ContractError(site, fmt::format("left the function '{}' of its table null", member.name)));
  }
  return OkStatus();
}

Status CheckText(const CallSite& site, std::string_view member, rl_str text) {
  if (text.size <= kMaxTextBytes && (text.data != nullptr || text.size == 0)) return OkStatus();
  return tl::unexpected<Error>(ContractError(
      site, fmt::format("set '{}' to a string of {} bytes at {}, expected at most {} bytes", member,
                        text.size, text.data == nullptr ? "null" : "an address", kMaxTextBytes)));
}

Status CheckName(const CallSite& site, rl_str name) {
  const bool sized = name.data != nullptr && name.size > 0 && name.size <= kMaxNameBytes;
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (sized && std::all_of(name.data, name.data + name.size, is_allowed)) return OkStatus();
  return tl::unexpected<Error>(ContractError(
      site, fmt::format("set 'name' to '{}', expected 1 to {} characters of [a-z0-9_-]",
                        Printable(name, kMaxNameBytes), kMaxNameBytes)));
}

}  // namespace

Result<rl_plugin_v1> Handshake(rl_plugin_query_fn query, std::string_view origin,
                               const rl_host_v1* host) {
  const CallSite site{origin, {}, RL_PLUGIN_QUERY_NAME};
  const rl_plugin_v1* theirs = nullptr;
  rl_error error = EmptyError();
  const int32_t code = CallPlugin(origin, site.function, query, host, &theirs, &error);
  if (Status status = CallStatus(site, code, error); !status) {
    // The plugin does not want to work here, for a reason of its own.
    if (status.error().id != "plugin.contract") {
      status.error().id = "plugin.refused";
      status.error().kind = ErrorKind::kBackend;
    }
    return tl::unexpected<Error>(std::move(status).error());
  }
  if (theirs == nullptr) {
    return tl::unexpected<Error>(ContractError(site, "returned RL_OK without a table"));
  }
  RL_ASSIGN_OR_RETURN(const rl_plugin_v1 table, CopyTable(origin, theirs));
  RL_RETURN_IF_ERROR(CheckMembers(site, table));
  RL_RETURN_IF_ERROR(CheckName(site, table.name));
  RL_RETURN_IF_ERROR(CheckText(site, "version", table.version));
  RL_RETURN_IF_ERROR(CheckText(site, "vendor", table.vendor));
  RL_RETURN_IF_ERROR(CheckText(site, "build", table.build));
  return table;
}

}  // namespace rullama
