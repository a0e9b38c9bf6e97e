#include "server/anthropic/anthropic_tools.h"

#include <fmt/format.h>

#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "server/json_body.h"

namespace rullama::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxAnthropicNameBytes = 128;
constexpr std::string_view kInputSchema = "input_schema";
// Members without an effect here.
constexpr std::string_view kWithoutEffect[] = {"cache_control", "input_examples",
                                               "eager_input_streaming", "allowed_callers"};

class ToolReader {
 public:
  ToolReader(FieldReader& fields, AnthropicTools& out) : fields_(fields), out_(out) {}

  void Read(const json& tool, size_t index) {
    const std::string place = fmt::format("tools[{}]", index);
    if (!tool.is_object()) {
      return fields_.Fail("invalid_type", place,
                          fmt::format("is of type {}, expected an object", tool.type_name()));
    }
    FieldReader members(tool, place + ".");
    json function = FunctionOf(members);
    const bool deferred = members.Boolean("defer_loading").value_or(false);
    for (const std::string_view name : kWithoutEffect) members.Find(name);
    fields_.Fail(members.error());
    if (deferred) return;
    out_.tools.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
    out_.indices.push_back(index);
  }

 private:
  json FunctionOf(FieldReader& members) {
    if (const auto type = members.Text("type"); type && *type != "custom") {
      members.Fail("unsupported_value", "type",
                   "is not \"custom\"; tools that Anthropic defines are not there");
    }
    json function = {{"name", members.Text("name").value_or("")}};
    const auto& name = function["name"].get_ref<const std::string&>();
    if (!IsToolName(name, kMaxAnthropicNameBytes)) {
      members.Fail("invalid_value", "name",
                   fmt::format("is not a name of 1 to {} letters, digits, '_' and '-'",
                               kMaxAnthropicNameBytes));
    } else if (!names_.insert(name).second) {
      members.Fail("invalid_value", "name", "is the name of another tool too; names are distinct");
    }
    if (const auto text = members.Text("description")) function["description"] = *text;
    const json* schema = members.Object(kInputSchema);
    if (schema == nullptr) {
      members.Fail("missing_required_parameter", kInputSchema, "is missing; give a JSON schema");
    } else if (const auto type = schema->find("type"); type == schema->end() || *type != "object") {
      members.Fail("invalid_value", kInputSchema, "has not the type \"object\"");
    } else {
      function["parameters"] = *schema;
    }
    if (const auto strict = members.Boolean("strict")) function["strict"] = *strict;
    return function;
  }

  FieldReader& fields_;
  AnthropicTools& out_;
  std::set<std::string> names_;
};

// The tools in the form of chat completions, with the schemas as the body has them.
std::string OrderedTools(const AnthropicTools& tools, const BodyContext& context) {
  const auto body = ordered_json::parse(OrderedText(context.text, {"tools"}));
  auto ordered = ordered_json::array();
  for (size_t i = 0; i < tools.indices.size(); ++i) {
    ordered_json function = tools.tools.tools[i]["function"];
    function["parameters"] = body[tools.indices[i]][kInputSchema];
    ordered.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return ordered.dump();
}

void ReadAnthropicChoice(FieldReader& fields, ToolFields& out) {
  const json* choice = fields.Object("tool_choice");
  if (choice == nullptr) return;
  FieldReader members(*choice, "tool_choice.");
  const auto type = members.Text("type");
  if (type == "any" || type == "tool") out.choice = ToolChoice::kRequired;
  if (type == "none") out.choice = ToolChoice::kNone;
  if (type != "auto" && type != "any" && type != "tool" && type != "none") {
    members.Fail("invalid_value", "type", "is not one of auto, any, tool, none");
  }
  out.parallel = !members.Boolean("disable_parallel_tool_use").value_or(false);
  if (type == "tool") {
    const auto name = members.Text("name");
    if (!name) {
      members.Fail("missing_required_parameter", "name", "is missing; name one of the tools");
    } else if (!OffersTool(out, *name)) {
      members.Fail("invalid_value", "name", "names no tool of this request");
    } else {
      out.allowed.push_back(*name);
    }
    out.parallel = false;
  }
  fields.Fail(members.error());
  if (out.choice == ToolChoice::kRequired && out.tools.empty()) {
    fields.Fail("invalid_value", "tool_choice", "asks for a call, but the request has no 'tools'");
  }
}

}  // namespace

AnthropicTools ReadAnthropicTools(FieldReader& fields, const BodyContext& context) {
  AnthropicTools out;
  if (const json* tools = fields.Find("tools")) {
    if (!tools->is_array()) {
      fields.Fail("invalid_type", "tools", "is not a list");
    } else if (tools->size() > kMaxTools) {
      fields.Fail("invalid_value", "tools",
                  fmt::format("has {} tools, expected at most {}", tools->size(), kMaxTools));
    }
    if (fields.error()) return out;
    ToolReader reader(fields, out);
    for (size_t i = 0; i < tools->size() && !fields.error(); ++i) reader.Read((*tools)[i], i);
  }
  if (fields.error()) return out;
  if (!out.indices.empty()) out.tools.ordered = OrderedTools(out, context);
  ReadAnthropicChoice(fields, out.tools);
  return out;
}

std::string AnthropicPlace(const std::vector<size_t>& indices, const std::string& place) {
  constexpr std::string_view kBegin = "tools[";
  constexpr std::string_view kFunction = ".function";
  constexpr std::string_view kParameters = ".parameters";
  if (place.starts_with("messages")) return "messages";
  if (!place.starts_with(kBegin)) return place;
  size_t index = 0;
  const auto [end, failure] =
      std::from_chars(place.data() + kBegin.size(), place.data() + place.size(), index);
  if (failure != std::errc() || index >= indices.size()) return place;
  std::string_view rest = std::string_view(place).substr(static_cast<size_t>(end - place.data()));
  if (rest.starts_with(']')) rest.remove_prefix(1);
  if (rest.starts_with(kFunction)) rest.remove_prefix(kFunction.size());
  std::string out = fmt::format("{}{}]", kBegin, indices[index]);
  if (rest.starts_with(kParameters)) {
    rest.remove_prefix(kParameters.size());
    out += fmt::format(".{}", kInputSchema);
  }
  return out + std::string(rest);
}

}  // namespace rullama::server
