#include "models/gemma3/chat/function_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "models/common/chat/json.h"
#include "models/common/chat/letter_case.h"
#include "models/common/chat/validate.h"
#include "models/gemma3/chat/function_markers.h"

namespace rullama::gemma3 {
namespace {

using chat::ErrorAt;
using chat::IsTruthy;
using chat::Member;
using chat::PromptWriter;
using chat::SortedMembers;
using chat::Text;
using chat::ToUpper;
using Json = nlohmann::json;

Status CheckExpressible(std::string_view text, const std::string& path) {
  if (text.find(kEscape) == std::string_view::npos) return OkStatus();
  return ErrorAt(path, "chat.escape",
                 "found '{}' in a string, which this model's notation cannot express; leave it out",
                 kEscape);
}

Status WriteQuoted(std::string_view text, const std::string& path, PromptWriter& out) {
  RL_RETURN_IF_ERROR(CheckExpressible(text, path));
  out.Template(kEscape);
  out.User(text);
  out.Template(kEscape);
  return OkStatus();
}

// Writes the parts of a list with commas between them.
template <typename Range, typename Write>
Status WriteList(const Range& parts, PromptWriter& out, const Write& write) {
  bool first = true;
  for (const auto& part : parts) {
    if (!std::exchange(first, false)) out.Template(",");
    RL_RETURN_IF_ERROR(write(part));
  }
  return OkStatus();
}

class DeclarationWriter {
 public:
  explicit DeclarationWriter(PromptWriter& out) : out_(out) {}

  Status Function(const Json& function, const std::string& path) {
    RL_ASSIGN_OR_RETURN(const std::string_view name, chat::DeclaredName(function, path));
    out_.Template("declaration:");
    out_.User(name);
    out_.Template("{");
    RL_RETURN_IF_ERROR(Description(function, path));
    const Json& parameters = Member(function, "parameters");
    if (!parameters.is_null() && !parameters.is_object()) {
      return ErrorAt(path + ".parameters", "chat.tools", "expected an object, found {}",
                     parameters.type_name());
    }
    if (IsTruthy(parameters)) {
      out_.Template(",parameters:{");
      RL_RETURN_IF_ERROR(Fields(parameters, path + ".parameters"));
      out_.Template("type:");
      RL_RETURN_IF_ERROR(WriteQuoted("OBJECT", path, out_));
      out_.Template("}");
    }
    out_.Template("}");
    return OkStatus();
  }

 private:
  Status Description(const Json& schema, const std::string& path) {
    const Json& text = Member(schema, "description");
    if (!text.is_null() && !text.is_string()) {
      return ErrorAt(path + ".description", "chat.tools", "expected a string, found {}",
                     text.type_name());
    }
    out_.Template("description:");
    return WriteQuoted(text.is_null() ? std::string_view() : Text(text), path + ".description",
                       out_);
  }

  // properties:{...},required:[...], as far as they are there, each with a comma after it.
  Status Fields(const Json& schema, const std::string& path) {
    if (const Json& properties = Member(schema, "properties"); IsTruthy(properties)) {
      RL_RETURN_IF_ERROR(Properties(properties, path + ".properties"));
      out_.Template(",");
    }
    if (const Json& required = Member(schema, "required"); IsTruthy(required)) {
      out_.Template("required:");
      RL_RETURN_IF_ERROR(WriteValue(required, path + ".required", out_));
      out_.Template(",");
    }
    return OkStatus();
  }

  Status Properties(const Json& properties, const std::string& path) {
    if (!properties.is_object()) {
      return ErrorAt(path, "chat.tools", "expected an object, found {}", properties.type_name());
    }
    out_.Template("properties:{");
    RL_RETURN_IF_ERROR(WriteList(SortedMembers(properties), out_, [&](const auto& member) {
      out_.User(member.key);
      out_.Template(":{");
      return Property(*member.value, fmt::format("{}.{}", path, member.key));
    }));
    out_.Template("}");
    return OkStatus();
  }

  // The rest of a property after its brace.
  Status Property(const Json& schema, const std::string& path) {
    RL_ASSIGN_OR_RETURN(const std::string type, TypeName(Member(schema, "type"), path + ".type"));
    RL_RETURN_IF_ERROR(Description(schema, path));
    out_.Template(",");
    if (const Json& values = Member(schema, "enum"); type == "STRING" && IsTruthy(values)) {
      out_.Template("enum:");
      RL_RETURN_IF_ERROR(WriteValue(values, path + ".enum", out_));
      out_.Template(",");
    }
    if (type == "OBJECT") RL_RETURN_IF_ERROR(Fields(schema, path));
    if (const Json& items = Member(schema, "items"); type == "ARRAY" && IsTruthy(items)) {
      RL_RETURN_IF_ERROR(Items(items, path + ".items"));
      out_.Template(",");
    }
    out_.Template("type:");
    RL_RETURN_IF_ERROR(WriteQuoted(type, path + ".type", out_));
    out_.Template("}");
    return OkStatus();
  }

  Status Items(const Json& items, const std::string& path) {
    if (!items.is_object()) {
      return ErrorAt(path, "chat.tools", "expected an object, found {}", items.type_name());
    }
    out_.Template("items:{");
    RL_RETURN_IF_ERROR(WriteList(SortedMembers(items), out_, [&](const auto& member) -> Status {
      const auto& [key, value] = member;
      const std::string place = fmt::format("{}.{}", path, key);
      if (key == "properties") return Properties(*value, place);
      out_.User(key);
      out_.Template(":");
      if (key != "type") return WriteValue(*value, place, out_);
      RL_ASSIGN_OR_RETURN(const std::string type, TypeName(*value, place));
      return WriteQuoted(type, place, out_);
    }));
    out_.Template("}");
    return OkStatus();
  }

  // In upper case; of several types the first that is not null. Empty if there is none.
  static Result<std::string> TypeName(const Json& type, const std::string& path) {
    if (type.is_null()) return std::string();
    if (type.is_string()) return ToUpper(Text(type));
    const auto is_string = [](const Json& entry) { return entry.is_string(); };
    if (!type.is_array() || !std::ranges::all_of(type, is_string)) {
      return ErrorAt(path, "chat.tools", "expected a type name or a list of type names, found {}",
                     type.type_name());
    }
    for (const Json& name : type) {
      if (Text(name) != "null") return ToUpper(Text(name));
    }
    return std::string();
  }

  PromptWriter& out_;
};

}  // namespace

Status WriteMembers(const Json& object, const std::string& path, PromptWriter& out) {
  return WriteList(SortedMembers(object), out, [&](const auto& member) -> Status {
    const std::string place = fmt::format("{}.{}", path, member.key);
    RL_RETURN_IF_ERROR(CheckExpressible(member.key, place));
    out.User(member.key);
    out.Template(":");
    return WriteValue(*member.value, place, out);
  });
}

Status WriteValue(const Json& value, const std::string& path, PromptWriter& out) {
  if (value.is_string()) return WriteQuoted(Text(value), path, out);
  if (value.is_object()) {
    out.Template("{");
    RL_RETURN_IF_ERROR(WriteMembers(value, path, out));
    out.Template("}");
  } else if (value.is_array()) {
    out.Template("[");
    RL_RETURN_IF_ERROR(
        WriteList(value, out, [&](const Json& one) { return WriteValue(one, path, out); }));
    out.Template("]");
  } else if (value.is_number_float()) {
    out.Template(fmt::format("{}", value.get<double>()));  // the shortest form: 1000, -0.5
  } else {
    out.Template(value.dump());  // null, true, false and integers are spelt as in JSON
  }
  return OkStatus();
}

Status WriteDeclaration(const Json& tool, const std::string& path, PromptWriter& out) {
  const Json& function = Member(tool, "function");
  const std::string place = path + ".function";
  if (!function.is_object()) {
    return ErrorAt(place, "chat.tools", "expected an object, found {}", function.type_name());
  }
  return DeclarationWriter(out).Function(function, place);
}

}  // namespace rullama::gemma3
