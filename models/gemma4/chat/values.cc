#include "models/gemma4/chat/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "models/common/chat/json.h"
#include "models/common/chat/letter_case.h"
#include "models/common/chat/validate.h"
#include "models/gemma4/chat/markers.h"
#include "models/gemma4/chat/text.h"

namespace rullama::gemma4 {
namespace {

using chat::ErrorAt;
using chat::IsTruthy;
using chat::Member;
using chat::PromptWriter;
using chat::SortedMembers;
using chat::Text;
using chat::ToUpper;
using Json = nlohmann::json;

// A user string in the template's string delimiters.
void WriteQuoted(PromptWriter& out, std::string_view text) {
  out.Template(kStringDelimiter);
  out.User(text);
  out.Template(kStringDelimiter);
}

// Puts a comma before every part but the first.
class Commas {
 public:
  explicit Commas(PromptWriter& out) : out_(out) {}
  void Next() {
    if (!first_) out_.Template(",");
    first_ = false;
  }

 private:
  PromptWriter& out_;
  bool first_ = true;
};

class DeclarationWriter {
 public:
  explicit DeclarationWriter(PromptWriter& out) : out_(out) {}

  Status Function(const Json& function, const std::string& path);

 private:
  Status Parameters(const Json& parameters, const std::string& path);
  Status Response(const Json& response, const std::string& path);
  Status Properties(const Json& properties, bool skip_schema_keys, const std::string& path);
  Status Property(const Json& schema, const std::string& path);
  Status Items(const Json& items, const std::string& path);
  Status Object(const Json& schema, Commas& commas, const std::string& path);
  Status Required(const Json& names, const std::string& path);
  // description:<|"|>...<|"|>
  Status Description(const Json& description, const std::string& path);
  // The type in upper case; a list of types the way the reference template prints one.
  static Result<std::string> TypeName(const Json& type, const std::string& path);

  PromptWriter& out_;
};

Status DeclarationWriter::Function(const Json& function, const std::string& path) {
  RL_ASSIGN_OR_RETURN(const std::string_view name, chat::DeclaredName(function, path));
  out_.Template("declaration:");
  out_.User(name);
  out_.Template("{");
  RL_RETURN_IF_ERROR(Description(Member(function, "description"), path));
  const Json& parameters = Member(function, "parameters");
  if (!parameters.is_null() && !parameters.is_object()) {
    return ErrorAt(path + ".parameters", "chat.tools", "expected an object, found {}",
                   parameters.type_name());
  }
  if (IsTruthy(parameters)) RL_RETURN_IF_ERROR(Parameters(parameters, path + ".parameters"));
  const Json& response = Member(function, "response");
  if (!response.is_null()) RL_RETURN_IF_ERROR(Response(response, path + ".response"));
  out_.Template("}");
  return OkStatus();
}

Status DeclarationWriter::Parameters(const Json& parameters, const std::string& path) {
  out_.Template(",parameters:{");
  const Json& properties = Member(parameters, "properties");
  if (IsTruthy(properties)) {
    if (!properties.is_object()) {
      return ErrorAt(path + ".properties", "chat.tools", "expected an object, found {}",
                     properties.type_name());
    }
    out_.Template("properties:{");
    RL_RETURN_IF_ERROR(Properties(properties, /*skip_schema_keys=*/false, path + ".properties"));
    out_.Template("},");
  }
  if (const Json& required = Member(parameters, "required"); IsTruthy(required)) {
    RL_RETURN_IF_ERROR(Required(required, path + ".required"));
    out_.Template(",");
  }
  // The reference leaves the brace open without a type; parameters are always an object.
  RL_ASSIGN_OR_RETURN(std::string type, TypeName(Member(parameters, "type"), path + ".type"));
  out_.Template("type:");
  WriteQuoted(out_, type.empty() ? "OBJECT" : type);
  out_.Template("}");
  return OkStatus();
}

Status DeclarationWriter::Response(const Json& response, const std::string& path) {
  out_.Template(",response:{");
  if (IsTruthy(Member(response, "description"))) {
    RL_RETURN_IF_ERROR(Description(Member(response, "description"), path));
    out_.Template(",");
  }
  RL_ASSIGN_OR_RETURN(const std::string type, TypeName(Member(response, "type"), path + ".type"));
  out_.Template("type:");
  WriteQuoted(out_, type);
  out_.Template("}");
  return OkStatus();
}

// If skip_schema_keys is set, the object is itself a schema whose other members are taken for
// properties.
Status DeclarationWriter::Properties(const Json& properties, bool skip_schema_keys,
                                     const std::string& path) {
  constexpr auto kSchemaKeys = std::to_array<std::string_view>(
      {"description", "type", "properties", "required", "nullable"});
  Commas commas(out_);
  for (const auto& [key, schema] : SortedMembers(properties)) {
    const bool is_schema_key =
        std::find(kSchemaKeys.begin(), kSchemaKeys.end(), key) != kSchemaKeys.end();
    if (skip_schema_keys && is_schema_key) continue;
    commas.Next();
    out_.User(key);
    out_.Template(":{");
    RL_RETURN_IF_ERROR(Property(*schema, fmt::format("{}.{}", path, key)));
    out_.Template("}");
  }
  return OkStatus();
}

// The parts of one property that are present, in a fixed order. A schema that is not an object
// (JSON Schema allows true and false) has none.
Status DeclarationWriter::Property(const Json& schema, const std::string& path) {
  Commas commas(out_);
  if (IsTruthy(Member(schema, "description"))) {
    commas.Next();
    RL_RETURN_IF_ERROR(Description(Member(schema, "description"), path));
  }
  RL_ASSIGN_OR_RETURN(const std::string type, TypeName(Member(schema, "type"), path + ".type"));
  if (const Json& values = Member(schema, "enum"); type == "STRING" && IsTruthy(values)) {
    commas.Next();
    out_.Template("enum:");
    WriteValue(values, KeyStyle::kQuoted, out_);
  }
  const Json& items = Member(schema, "items");
  if (type == "ARRAY" && items.is_object() && !items.empty()) {
    commas.Next();
    out_.Template("items:{");
    RL_RETURN_IF_ERROR(Items(items, path + ".items"));
    out_.Template("}");
  }
  if (IsTruthy(Member(schema, "nullable"))) {
    commas.Next();
    out_.Template("nullable:true");
  }
  if (type == "OBJECT") RL_RETURN_IF_ERROR(Object(schema, commas, path));
  commas.Next();
  out_.Template("type:");
  WriteQuoted(out_, type);
  return OkStatus();
}

Status DeclarationWriter::Object(const Json& schema, Commas& commas, const std::string& path) {
  commas.Next();
  out_.Template("properties:{");
  if (const Json& properties = Member(schema, "properties"); properties.is_object()) {
    RL_RETURN_IF_ERROR(Properties(properties, /*skip_schema_keys=*/false, path + ".properties"));
  } else {
    RL_RETURN_IF_ERROR(Properties(schema, /*skip_schema_keys=*/true, path));
  }
  out_.Template("}");
  if (const Json& required = Member(schema, "required"); IsTruthy(required)) {
    commas.Next();
    RL_RETURN_IF_ERROR(Required(required, path + ".required"));
  }
  return OkStatus();
}

Status DeclarationWriter::Items(const Json& items, const std::string& path) {
  Commas commas(out_);
  for (const auto& [key, value] : SortedMembers(items)) {
    if (value->is_null()) continue;
    commas.Next();
    const std::string value_path = fmt::format("{}.{}", path, key);
    if (key == "properties") {
      out_.Template("properties:{");
      if (value->is_object()) RL_RETURN_IF_ERROR(Properties(*value, false, value_path));
      out_.Template("}");
    } else if (key == "required") {
      RL_RETURN_IF_ERROR(Required(*value, value_path));
    } else if (key == "type" && value->is_string()) {
      out_.Template("type:");
      WriteQuoted(out_, ToUpper(Text(*value)));
    } else if (key == "type") {
      RL_RETURN_IF_ERROR(TypeName(*value, value_path));
      Json upper = Json::array();
      for (const Json& type : *value) upper.push_back(ToUpper(Text(type)));
      out_.Template("type:");
      WriteValue(upper, KeyStyle::kQuoted, out_);
    } else {
      out_.User(key);
      out_.Template(":");
      WriteValue(*value, KeyStyle::kQuoted, out_);
    }
  }
  return OkStatus();
}

Status DeclarationWriter::Required(const Json& names, const std::string& path) {
  if (!names.is_array()) {
    return ErrorAt(path, "chat.tools", "expected a list of names, found {}", names.type_name());
  }
  out_.Template("required:[");
  Commas commas(out_);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].is_string()) {
      return ErrorAt(fmt::format("{}[{}]", path, i), "chat.tools", "expected a string, found {}",
                     names[i].type_name());
    }
    commas.Next();
    WriteQuoted(out_, Text(names[i]));
  }
  out_.Template("]");
  return OkStatus();
}

Status DeclarationWriter::Description(const Json& description, const std::string& path) {
  if (!description.is_null() && !description.is_string()) {
    return ErrorAt(path + ".description", "chat.tools", "expected a string, found {}",
                   description.type_name());
  }
  out_.Template("description:");
  WriteQuoted(out_, description.is_null() ? std::string_view() : Text(description));
  return OkStatus();
}

Result<std::string> DeclarationWriter::TypeName(const Json& type, const std::string& path) {
  if (type.is_null()) return std::string();
  if (type.is_string()) return ToUpper(Text(type));
  const auto is_string = [](const Json& entry) { return entry.is_string(); };
  if (!type.is_array() || !std::all_of(type.begin(), type.end(), is_string)) {
    return ErrorAt(path, "chat.tools", "expected a type name or a list of type names, found {}",
                   type.type_name());
  }
  std::string list = "[";
  for (const Json& name : type) {
    if (list.size() > 1) list += ", ";
    list += fmt::format("'{}'", ToUpper(Text(name)));
  }
  return list + "]";
}

}  // namespace

void WriteMembers(const Json& object, PromptWriter& out) {
  Commas commas(out);
  for (const auto& [key, value] : SortedMembers(object)) {
    commas.Next();
    out.User(key);
    out.Template(":");
    WriteValue(*value, KeyStyle::kBare, out);
  }
}

void WriteValue(const Json& value, KeyStyle keys, PromptWriter& out) {
  if (value.is_string()) {
    WriteQuoted(out, Text(value));
  } else if (value.is_object()) {
    out.Template("{");
    Commas commas(out);
    for (const auto& [key, member] : SortedMembers(value)) {
      commas.Next();
      keys == KeyStyle::kQuoted ? WriteQuoted(out, key) : out.User(key);
      out.Template(":");
      WriteValue(*member, keys, out);
    }
    out.Template("}");
  } else if (value.is_array()) {
    out.Template("[");
    Commas commas(out);
    for (const Json& element : value) {
      commas.Next();
      WriteValue(element, keys, out);
    }
    out.Template("]");
  } else if (value.is_number_float()) {
    out.Template(FormatFloat(value.get<double>()));
  } else {
    out.Template(value.dump());  // null, true, false and integers are spelt as in JSON
  }
}

Status WriteDeclaration(const Json& tool, std::string_view path, PromptWriter& out) {
  const Json& function = Member(tool, "function");
  const std::string function_path = fmt::format("{}.function", path);
  if (!function.is_object()) {
    return ErrorAt(function_path, "chat.tools", "expected an object, found {}",
                   function.type_name());
  }
  return DeclarationWriter(out).Function(function, function_path);
}

}  // namespace rullama::gemma4
