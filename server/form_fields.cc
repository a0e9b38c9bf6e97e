#include "server/form_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "core/base/json_reader.h"
#include "server/json_body.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxChoices = 1'000;

// A member; null for one that is absent, or that a client leaves out by an empty text.
const json* FindForm(FieldReader& fields, std::string_view name) {
  const json* found = fields.Find(name);
  return found == nullptr || IsEmptyText(*found) ? nullptr : found;
}

// A schema as a value, or as a text of JSON.
void ReadSchema(FieldReader& fields, std::string_view name, const json& value,
                const std::vector<std::string>& path, const BodyContext& context, TextForm& out) {
  out.kind = TextForm::Kind::kJsonSchema;
  if (value.is_string()) {
    out.schema = value.get<std::string>();
    // How deep a schema may be is for its compiler to say.
    if (const auto read = ReadJson(out.schema);
        !read && read.error().kind != JsonFault::Kind::kDepth) {
      fields.Fail("invalid_value", name,
                  fmt::format("is a text that {}; give a JSON schema", read.error().ToString()));
    }
  } else {
    out.schema = OrderedText(context.text, path);
  }
}

void ReadPattern(FieldReader& fields, std::string_view name, const json& value, TextForm& out) {
  out.kind = TextForm::Kind::kPattern;
  if (!value.is_string()) {
    return fields.Fail(
        "invalid_type", name,
        fmt::format("is of type {}, expected a regular expression", value.type_name()));
  }
  out.pattern = value.get<std::string>();
}

void ReadChoices(FieldReader& fields, std::string_view name, const json& value, TextForm& out) {
  out.kind = TextForm::Kind::kChoices;
  if (!value.is_array()) {
    return fields.Fail("invalid_type", name,
                       fmt::format("is of type {}, expected a list of texts", value.type_name()));
  }
  if (value.empty() || value.size() > kMaxChoices) {
    return fields.Fail("invalid_value", name,
                       fmt::format("has {} texts, expected 1 to {}", value.size(), kMaxChoices));
  }
  for (const json& choice : value) {
    if (!choice.is_string() || IsEmptyText(choice)) {
      return fields.Fail("invalid_type", name,
                         "has an element that is not a text, or an empty one");
    }
    out.choices.push_back(choice.get<std::string>());
  }
}

// structured_outputs: exactly one of its members.
void ReadStructured(FieldReader& fields, const json& value, const BodyContext& context,
                    TextForm& out) {
  constexpr std::string_view kPlace = "structured_outputs";
  if (!value.is_object()) {
    return fields.Fail("invalid_type", kPlace,
                       fmt::format("is of type {}, expected an object", value.type_name()));
  }
  FieldReader inner(value, std::string(kPlace) + ".");
  int forms = 0;
  if (const json* schema = FindForm(inner, "json")) {
    ++forms;
    ReadSchema(inner, "json", *schema, {std::string(kPlace), "json"}, context, out);
  }
  if (const json* pattern = FindForm(inner, "regex")) {
    ++forms;
    ReadPattern(inner, "regex", *pattern, out);
  }
  if (const json* choices = inner.Find("choice")) {
    ++forms;
    ReadChoices(inner, "choice", *choices, out);
  }
  if (inner.Boolean("json_object").value_or(false)) {
    ++forms;
    out.kind = TextForm::Kind::kJsonObject;
  }
  fields.Fail(inner.error());
  for (const std::string& name : inner.Unknown()) {
    fields.Fail("unsupported_parameter", name,
                "is not supported; json, regex, choice and json_object are");
  }
  if (forms != 1) {
    fields.Fail("invalid_value", kPlace,
                fmt::format("has {} of json, regex, choice and json_object, expected one", forms));
  }
}

using FormReader = void (*)(FieldReader& fields, std::string_view name, const json& value,
                            const BodyContext& context, TextForm& out);
struct FormMember {
  std::string_view name;
  FormReader read = nullptr;  // null: not supported
};

// Every member that some server has for the form of an answer.
constexpr auto kFormMembers = std::to_array<FormMember>({
    {"response_format",
     [](FieldReader& fields, std::string_view name, const json& value, const BodyContext& context,
        TextForm& out) {
       out = ReadTextFormat(fields, value, {std::string(name)}, SchemaPlace::kMember, context);
     }},
    {"structured_outputs",
     [](FieldReader& fields, std::string_view, const json& value, const BodyContext& context,
        TextForm& out) { ReadStructured(fields, value, context, out); }},
    {"guided_json",
     [](FieldReader& fields, std::string_view name, const json& value, const BodyContext& context,
        TextForm& out) { ReadSchema(fields, name, value, {std::string(name)}, context, out); }},
    {"json_schema",
     [](FieldReader& fields, std::string_view name, const json& value, const BodyContext& context,
        TextForm& out) { ReadSchema(fields, name, value, {std::string(name)}, context, out); }},
    {"guided_regex",
     [](FieldReader& fields, std::string_view name, const json& value, const BodyContext&,
        TextForm& out) { ReadPattern(fields, name, value, out); }},
    {"regex", [](FieldReader& fields, std::string_view name, const json& value, const BodyContext&,
                 TextForm& out) { ReadPattern(fields, name, value, out); }},
    {"guided_choice",
     [](FieldReader& fields, std::string_view name, const json& value, const BodyContext&,
        TextForm& out) { ReadChoices(fields, name, value, out); }},
    {"guided_grammar"},
    {"guided_whitespace_pattern"},
    {"grammar"},
    {"ebnf"},
    {"structural_tag"},
    {"format"},
});

// The schema of a format, and the names that lead to it.
struct FormatSchema {
  const json* value = nullptr;
  std::vector<std::string> path;
};

FormatSchema FindSchema(FieldReader& outer, const std::string& place,
                        const std::vector<std::string>& path, SchemaPlace schema_place,
                        TextForm& out) {
  FormatSchema found;
  if (const json* nested = outer.Object("json_schema")) {
    FieldReader inner(*nested, place + ".json_schema.");
    if (!inner.Text("name")) {
      inner.Fail("missing_required_parameter", "name", "is missing; give the schema a name");
    }
    inner.Boolean("strict");
    inner.Text("description");
    found = {inner.Find("schema"), path};
    found.path.insert(found.path.end(), {"json_schema", "schema"});
    if (found.value == nullptr) {
      inner.Fail("missing_required_parameter", "schema", "is missing; give a JSON schema");
    }
    out.ignored = inner.Unknown();
    outer.Fail(inner.error());
  }
  const bool named = outer.Text("name").has_value();
  outer.Boolean("strict");
  outer.Text("description");
  if (const json* outer_schema = outer.Find("schema")) {
    if (found.value != nullptr) {
      outer.Fail("invalid_value", "schema",
                 "is given together with 'json_schema'; give one schema");
    }
    found = {outer_schema, path};
    found.path.emplace_back("schema");
    if (schema_place == SchemaPlace::kNamed && !named) {
      outer.Fail("missing_required_parameter", "name", "is missing; give the schema a name");
    }
  }
  return found;
}

}  // namespace

TextForm ReadTextFormat(FieldReader& fields, const json& format,
                        const std::vector<std::string>& path, SchemaPlace schema_place,
                        const BodyContext& context) {
  TextForm out;
  const std::string place = fmt::format("{}", fmt::join(path, "."));
  if (!format.is_object()) {
    fields.Fail("invalid_type", place,
                fmt::format("is of type {}, expected an object", format.type_name()));
    return out;
  }
  FieldReader outer(format, place + ".");
  const std::string type = outer.Text("type").value_or("");
  const FormatSchema schema = FindSchema(outer, place, path, schema_place, out);
  if (type.empty()) {
    outer.Fail("missing_required_parameter", "type",
               "is missing; expected text, json_object or json_schema");
  } else if (type != "text" && type != "json_object" && type != "json_schema") {
    outer.Fail("invalid_value", "type", "is not one of text, json_object, json_schema");
  } else if (type == "text" && schema.value != nullptr) {
    outer.Fail("invalid_value", "type",
               "is text, but there is a schema; write json_schema, or leave the schema out");
  } else if (schema.value != nullptr) {
    out.kind = TextForm::Kind::kJsonSchema;
    out.schema = OrderedText(context.text, schema.path);
  } else if (type == "json_schema") {
    outer.Fail("missing_required_parameter",
               schema_place == SchemaPlace::kMember ? "json_schema" : "schema",
               "is missing; give a JSON schema");
  } else if (type == "json_object") {
    out.kind = TextForm::Kind::kJsonObject;
  }
  std::ranges::move(outer.Unknown(), std::back_inserter(out.ignored));
  fields.Fail(outer.error());
  return out;
}

TextForm ReadTextForm(FieldReader& fields, const BodyContext& context) {
  TextForm out;
  std::vector<std::string> ignored;
  for (const FormMember& member : kFormMembers) {
    const json* found = FindForm(fields, member.name);
    if (found == nullptr) continue;
    if (member.read == nullptr) {
      fields.Fail("unsupported_parameter", member.name,
                  "is not supported; give a JSON schema as 'response_format'");
      continue;
    }
    TextForm one;
    member.read(fields, member.name, *found, context, one);
    one.name = member.name;
    if (one.kind != TextForm::Kind::kText && out.kind != TextForm::Kind::kText) {
      fields.Fail("invalid_value", member.name,
                  fmt::format("is given together with '{}'; an answer has one form", out.name));
    }
    std::ranges::move(one.ignored, std::back_inserter(ignored));
    if (one.kind != TextForm::Kind::kText || out.name.empty()) out = std::move(one);
  }
  out.ignored = std::move(ignored);
  return out;
}

void RefuseOtherForms(FieldReader& fields, std::string_view instead) {
  for (const FormMember& member : kFormMembers) {
    if (member.name == instead || FindForm(fields, member.name) == nullptr) continue;
    fields.Fail("unsupported_parameter", member.name,
                fmt::format("is not read here; give a JSON schema as '{}'", instead));
  }
}

}  // namespace rullama::server
