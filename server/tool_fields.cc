#include "server/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxToolNameBytes = 64;

// The function of a tool, checked, in the form of chat completions.
json ReadTool(FieldReader& fields, const std::string& place, const json& tool, bool flat,
              std::set<std::string>& names) {
  if (!tool.is_object()) {
    fields.Fail("invalid_type", place,
                fmt::format("is of type {}, expected an object", tool.type_name()));
    return {};
  }
  FieldReader outer(tool, place + ".");
  const auto type = outer.Text("type");
  if (type != "function") {
    outer.Fail("unsupported_value", "type", "is not \"function\"; only functions are called here");
  }
  const json* function = flat ? &tool : outer.Object("function");
  if (function == nullptr) {
    outer.Fail("missing_required_parameter", "function", "is missing; give its name");
    fields.Fail(outer.error());
    return {};
  }
  FieldReader inner(*function, place + (flat ? "." : ".function."));
  json out = json::object();
  const std::string name = inner.Text("name").value_or("");
  out["name"] = name;
  if (!IsToolName(name, kMaxToolNameBytes)) {
    inner.Fail(
        "invalid_value", "name",
        fmt::format("is not a name of 1 to {} letters, digits, '_' and '-'", kMaxToolNameBytes));
  } else if (!names.insert(name).second) {
    inner.Fail("invalid_value", "name", "is the name of another tool too; names are distinct");
  }
  if (const auto description = inner.Text("description")) out["description"] = *description;
  if (const json* parameters = inner.Object("parameters")) out["parameters"] = *parameters;
  if (const auto strict = inner.Boolean("strict")) out["strict"] = *strict;
  fields.Fail(outer.error());
  fields.Fail(inner.error());
  return {{"type", "function"}, {"function", std::move(out)}};
}

void ReadToolList(FieldReader& fields, const json& tools, bool flat, json& out) {
  if (!tools.is_array()) return fields.Fail("invalid_type", "tools", "is not a list");
  if (tools.size() > kMaxTools) {
    return fields.Fail("invalid_value", "tools",
                       fmt::format("has {} tools, expected at most {}", tools.size(), kMaxTools));
  }
  std::set<std::string> names;
  for (size_t i = 0; i < tools.size() && !fields.error(); ++i) {
    out.push_back(ReadTool(fields, fmt::format("tools[{}]", i), tools[i], flat, names));
  }
}

// {"type": "function", "function": {"name"}}, flat {"type": "function", "name"}.
void AllowTool(FieldReader& fields, const json& choice, bool flat, ToolFields& out) {
  FieldReader outer(choice, "tool_choice.");
  const json* function = flat ? &choice : outer.Object("function");
  FieldReader inner(function == nullptr ? choice : *function, "tool_choice.");
  const auto name = inner.Text("name");
  if (!name) {
    inner.Fail("missing_required_parameter", "name", "is missing; name one of the tools");
  } else if (!OffersTool(out, *name)) {
    inner.Fail("invalid_value", "name", "names no tool of this request");
  } else {
    out.allowed.push_back(*name);
  }
  fields.Fail(outer.error());
  fields.Fail(inner.error());
}

void ReadMode(FieldReader& fields, const json& mode, ToolFields& out) {
  if (mode == "auto") {
    out.choice = ToolChoice::kAuto;
  } else if (mode == "none") {
    out.choice = ToolChoice::kNone;
  } else if (mode == "required") {
    out.choice = ToolChoice::kRequired;
  } else {
    fields.Fail(mode.is_string() ? "invalid_value" : "invalid_type", "tool_choice",
                "is not one of auto, none, required, a function");
  }
}

// {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}, flat without the inner object.
void ReadAllowed(FieldReader& fields, const json& choice, bool flat, ToolFields& out) {
  FieldReader outer(choice, "tool_choice.");
  const json* inner = flat ? &choice : outer.Object("allowed_tools");
  const json empty = json::object();
  FieldReader members(inner == nullptr ? empty : *inner, "tool_choice.");
  const json* mode = members.Find("mode");
  if (mode != nullptr) ReadMode(fields, *mode, out);
  const json* list = members.Find("tools");
  if (list == nullptr || !list->is_array() || list->empty()) {
    members.Fail("missing_required_parameter", "tools", "is not a list of tools");
  } else {
    for (const json& tool : *list) {
      if (!tool.is_object()) {
        members.Fail("invalid_type", "tools", "has an element that is not an object");
        break;
      }
      AllowTool(fields, tool, flat, out);
    }
  }
  fields.Fail(outer.error());
  fields.Fail(members.error());
}

void ReadChoice(FieldReader& fields, const json& choice, bool flat, ToolFields& out) {
  if (!choice.is_object()) {
    ReadMode(fields, choice, out);
  } else if (choice.value("type", json()) == "function") {
    out.choice = ToolChoice::kRequired;
    AllowTool(fields, choice, flat, out);
  } else if (choice.value("type", json()) == "allowed_tools") {
    ReadAllowed(fields, choice, flat, out);
  } else {
    fields.Fail("invalid_value", "tool_choice.type", "is not one of function, allowed_tools");
  }
  if (out.choice == ToolChoice::kRequired && out.tools.empty()) {
    fields.Fail("invalid_value", "tool_choice", "asks for a call, but the request has no 'tools'");
  }
}

}  // namespace

bool IsToolName(std::string_view name, size_t most) {
  return !name.empty() && name.size() <= most && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

bool OffersTool(const ToolFields& tools, std::string_view name) {
  return std::ranges::any_of(tools.tools,
                             [&](const json& tool) { return tool["function"]["name"] == name; });
}

std::string FlatToolPlace(std::string place) {
  constexpr std::string_view kFunction = ".function";
  const size_t at = place.starts_with("tools[") ? place.find(kFunction) : std::string::npos;
  return at == std::string::npos ? place : place.erase(at, kFunction.size());
}

ToolFields ReadTools(FieldReader& fields, bool flat) {
  ToolFields out;
  out.flat = flat;
  if (const json* tools = fields.Find("tools")) ReadToolList(fields, *tools, flat, out.tools);
  out.parallel = fields.Boolean("parallel_tool_calls").value_or(true);
  const json* choice = fields.Find("tool_choice");
  if (choice != nullptr && !fields.error()) ReadChoice(fields, *choice, flat, out);
  return out;
}

}  // namespace rullama::server
