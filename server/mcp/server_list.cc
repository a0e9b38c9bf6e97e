#include "server/mcp/server_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/base/json_reader.h"
#include "core/base/printable.h"

namespace rullama::server::mcp {
namespace {

using nlohmann::json;

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxTextBytes = 32'768;  // of one argument, address or field
constexpr size_t kMaxServerNameBytes = 64;
constexpr std::string_view kMember = "mcpServers";

// Names of the transports in files of editors; those of the older one, SSE, are not here.
constexpr std::array<std::string_view, 4> kHttpTypes = {"http", "streamable-http", "streamableHttp",
                                                        "streamable_http"};

tl::unexpected<Error> WrongEntry(std::string_view place, std::string_view what) {
  return MakeError(ErrorKind::kUsage, "mcp.servers", "{} {}", ShownName(place), what);
}

// The variable that "${env:NAME}" or "${NAME}" names.
std::string_view VariableOf(std::string_view reference) {
  constexpr std::string_view kPrefix = "env:";
  if (reference.starts_with(kPrefix)) reference.remove_prefix(kPrefix.size());
  return reference;
}

bool IsVariableName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Reads the texts of one server.
class EntryReader {
 public:
  EntryReader(const json& object, std::string place, const char* (*getenv)(const char*))
      : object_(object), place_(std::move(place)), getenv_(getenv) {}

  [[nodiscard]] std::string PlaceOf(std::string_view name) const {
    return fmt::format("{}.{}", place_, name);
  }
  const json* Find(std::string_view name) {
    known_.insert(std::string(name));
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  Result<std::string> Text(std::string_view name) {
    const json* value = Find(name);
    if (value == nullptr) return std::string();
    return Expanded(PlaceOf(name), *value);
  }
  // With the variables of the environment in place of their names.
  [[nodiscard]] Result<std::string> Expanded(std::string_view place, const json& value) const {
    if (!value.is_string()) {
      return WrongEntry(place, fmt::format("is of type {}, expected a text", value.type_name()));
    }
    std::string_view rest = value.get_ref<const std::string&>();
    std::string text;
    for (size_t at = rest.find("${"); at != rest.npos; at = rest.find("${")) {
      text += rest.substr(0, at);
      rest.remove_prefix(at + 2);
      const size_t end = rest.find('}');
      const std::string name(VariableOf(rest.substr(0, end)));
      if (end == rest.npos || !IsVariableName(name)) {
        return WrongEntry(place,
                          "has '${' without the name of a variable of the environment and '}'");
      }
      const char* variable = getenv_(name.c_str());
      if (variable == nullptr) {
        return WrongEntry(place,
                          fmt::format("names the variable {}, which is not set; set it before "
                                      "rullama starts",
                                      name));
      }
      text += variable;
      rest.remove_prefix(end + 1);
    }
    text += rest;
    if (text.size() > kMaxTextBytes || text.find('\0') != text.npos) {
      return WrongEntry(place, fmt::format("has {} bytes or a NUL, expected at most {} without one",
                                           text.size(), kMaxTextBytes));
    }
    return text;
  }
  [[nodiscard]] std::vector<std::string> Unknown() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : object_.items()) {
      if (!known_.contains(name)) names.push_back(PlaceOf(name));
    }
    return names;
  }

 private:
  const json& object_;
  std::string place_;
  const char* (*getenv_)(const char*);
  std::set<std::string, std::less<>> known_;
};

Result<std::vector<std::string>> ReadArguments(EntryReader& reader) {
  std::vector<std::string> arguments;
  const json* list = reader.Find("args");
  if (list == nullptr) return arguments;
  if (!list->is_array()) return WrongEntry(reader.PlaceOf("args"), "is not a list of texts");
  for (const json& value : *list) {
    const std::string place = fmt::format("{}[{}]", reader.PlaceOf("args"), arguments.size());
    RL_ASSIGN_OR_RETURN(std::string text, reader.Expanded(place, value));
    arguments.push_back(std::move(text));
  }
  return arguments;
}

Result<std::map<std::string, std::string>> ReadTexts(EntryReader& reader, std::string_view name) {
  std::map<std::string, std::string> texts;
  const json* object = reader.Find(name);
  if (object == nullptr) return texts;
  if (!object->is_object()) return WrongEntry(reader.PlaceOf(name), "is not an object of texts");
  for (const auto& [key, value] : object->items()) {
    RL_ASSIGN_OR_RETURN(texts[key], reader.Expanded(reader.PlaceOf(name) + "." + key, value));
  }
  return texts;
}

bool IsFieldName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}
bool IsFieldValue(std::string_view value) {
  return std::ranges::none_of(value, [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
  });
}

Result<std::vector<HeaderField>> ReadHeaders(EntryReader& reader) {
  RL_ASSIGN_OR_RETURN(const auto texts, ReadTexts(reader, "headers"));
  std::vector<HeaderField> headers;
  for (const auto& [name, value] : texts) {
    if (!IsFieldName(name) || !IsFieldValue(value)) {
      return WrongEntry(reader.PlaceOf("headers." + name), "is not a field of HTTP");
    }
    headers.push_back({name, value});
  }
  return headers;
}

Status CheckType(EntryReader& reader, const ToolServerEntry& entry) {
  RL_ASSIGN_OR_RETURN(const std::string type, reader.Text("type"));
  const bool http = std::ranges::find(kHttpTypes, type) != kHttpTypes.end();
  if (type.empty() || (entry.is_program() ? type == "stdio" : http)) return OkStatus();
  return WrongEntry(reader.PlaceOf("type"),
                    fmt::format("is '{}', expected {}", ShownName(type),
                                entry.is_program() ? "stdio for a server with a command"
                                                   : "http, which is MCP's streamable HTTP, for a "
                                                     "server with an address"));
}

// Nothing for a server that is switched off.
Result<std::optional<ToolServerEntry>> ReadEntry(EntryReader& reader, const std::string& name,
                                                 std::string_view place) {
  const json* disabled = reader.Find("disabled");
  if (disabled != nullptr && !disabled->is_boolean()) {
    return WrongEntry(reader.PlaceOf("disabled"), "is not true or false");
  }
  ToolServerEntry entry{.name = name, .command = {}};
  RL_ASSIGN_OR_RETURN(entry.command, reader.Text("command"));
  RL_ASSIGN_OR_RETURN(entry.url, reader.Text("url"));
  if (entry.command.empty() == entry.url.empty()) {
    return WrongEntry(place, "has both or neither of command and url, expected one of them");
  }
  RL_ASSIGN_OR_RETURN(entry.arguments, ReadArguments(reader));
  RL_ASSIGN_OR_RETURN(entry.environment, ReadTexts(reader, "env"));
  RL_ASSIGN_OR_RETURN(entry.folder, reader.Text("cwd"));
  RL_ASSIGN_OR_RETURN(entry.headers, ReadHeaders(reader));
  RL_RETURN_IF_ERROR(CheckType(reader, entry));
  for (const auto& [variable, value] : entry.environment) {
    if (variable.empty() || variable.find('=') != variable.npos) {
      return WrongEntry(reader.PlaceOf("env." + variable), "is not a name of a variable");
    }
  }
  if (!entry.url.empty() && !entry.url.starts_with("http://") &&
      !entry.url.starts_with("https://")) {
    return WrongEntry(reader.PlaceOf("url"), "is not an address of http or https");
  }
  if (disabled != nullptr && disabled->get<bool>()) return std::nullopt;
  return entry;
}

}  // namespace

Result<ToolServerList> ParseToolServers(std::string_view text, const char* (*getenv)(const char*)) {
  const auto whole = ReadJson(text);
  if (!whole) return WrongEntry("the list of servers", whole.error().ToString());
  const json* servers =
      whole->is_object() && whole->contains(kMember) ? &(*whole)[kMember] : nullptr;
  if (servers == nullptr || !servers->is_object()) {
    return WrongEntry(
        "the list of servers",
        "is not an object with a member mcpServers, an object of servers by their names");
  }
  if (servers->size() > kMaxServers) {
    return WrongEntry(
        kMember, fmt::format("has {} servers, expected at most {}", servers->size(), kMaxServers));
  }
  ToolServerList list;
  for (const auto& [name, object] : servers->items()) {
    const std::string place = fmt::format("{}.{}", kMember, name);
    if (name.empty() || name.size() > kMaxServerNameBytes) {
      return WrongEntry(place, fmt::format("has a name of {} bytes, expected 1 to {}", name.size(),
                                           kMaxServerNameBytes));
    }
    if (!object.is_object()) return WrongEntry(place, "is not an object");
    EntryReader reader(object, place, getenv);
    RL_ASSIGN_OR_RETURN(auto entry, ReadEntry(reader, name, place));
    if (entry) list.servers.push_back(*std::move(entry));
    std::ranges::move(reader.Unknown(), std::back_inserter(list.ignored));
  }
  return list;
}

Result<ToolServerList> ReadToolServers(const std::string& path,
                                       const char* (*getenv)(const char*)) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() || file.bad()) {
    return MakeError(ErrorKind::kIo, "io.open",
                     "the list of servers '{}' cannot be read, or has more than {} bytes",
                     ShownName(path), kMaxFileBytes);
  }
  text.resize(static_cast<size_t>(file.gcount()));
  auto list = ParseToolServers(text, getenv);
  if (!list) return tl::unexpected(std::move(list).error().WithContext(ShownName(path)));
  return list;
}

}  // namespace rullama::server::mcp
