// A plain JSON Schema validator for tests, which shares nothing with the compiler: it looks at a
// parsed value and the schema as written.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "core/base/utf8.h"

namespace rullama::constraint {

class SchemaValidator {
 public:
  using Value = nlohmann::json;

  explicit SchemaValidator(Value schema) : root_(std::move(schema)) {}

  [[nodiscard]] bool IsValid(const Value& value) const { return Holds(root_, value); }

 private:
  static bool IsInteger(const Value& value) {
    return value.is_number_integer() ||
           (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()));
  }
  static bool HasType(const std::string& type, const Value& value) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") return IsInteger(value);
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    return type == "object" && value.is_object();
  }
  static size_t Characters(const std::string& text) {
    return static_cast<size_t>(
        std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  }

  [[nodiscard]] bool Holds(const Value& schema, const Value& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    const auto has = [&](const char* name) { return schema.contains(name); };
    if (has("$ref")) {
      const std::string ref = schema["$ref"];
      if (!Holds(root_[Value::json_pointer(ref.substr(1))], value)) return false;
    }
    if (has("type")) {
      const Value& type = schema["type"];
      const Value types = type.is_array() ? type : Value::array({type});
      if (std::ranges::none_of(types, [&](const Value& t) { return HasType(t, value); })) {
        return false;
      }
    }
    if (has("const") && schema["const"] != value) return false;
    if (has("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end()) {
      return false;
    }
    const auto holds = [&](const Value& other) { return Holds(other, value); };
    if (has("allOf") && !std::ranges::all_of(schema["allOf"], holds)) return false;
    if (has("anyOf") && std::ranges::none_of(schema["anyOf"], holds)) return false;
    if (has("oneOf") && std::ranges::count_if(schema["oneOf"], holds) != 1) return false;
    return NumberHolds(schema, value) && StringHolds(schema, value) && ListHolds(schema, value) &&
           ObjectHolds(schema, value);
  }

  static bool NumberHolds(const Value& schema, const Value& value) {
    if (!value.is_number()) return true;
    const auto number = value.get<double>();
    const auto limit = [&](const char* name) { return schema[name].template get<double>(); };
    if (schema.contains("minimum") && number < limit("minimum")) return false;
    if (schema.contains("maximum") && number > limit("maximum")) return false;
    if (schema.contains("exclusiveMinimum") && number <= limit("exclusiveMinimum")) return false;
    return !schema.contains("exclusiveMaximum") || number < limit("exclusiveMaximum");
  }

  static bool StringHolds(const Value& schema, const Value& value) {
    if (!value.is_string()) return true;
    const std::string text = value;
    if (schema.contains("minLength") && Characters(text) < schema["minLength"]) return false;
    if (schema.contains("maxLength") && Characters(text) > schema["maxLength"]) return false;
    return !schema.contains("pattern") ||
           std::regex_search(text, std::regex(schema["pattern"].get<std::string>()));
  }

  [[nodiscard]] bool ListHolds(const Value& schema, const Value& value) const {
    if (!value.is_array()) return true;
    if (schema.contains("minItems") && value.size() < schema["minItems"]) return false;
    if (schema.contains("maxItems") && value.size() > schema["maxItems"]) return false;
    const Value prefix = schema.value("prefixItems", Value::array());
    for (size_t i = 0; i < value.size(); ++i) {
      if (i < prefix.size()) {
        if (!Holds(prefix[i], value[i])) return false;
      } else if (schema.contains("items") && !Holds(schema["items"], value[i])) {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] bool ObjectHolds(const Value& schema, const Value& value) const {
    if (!value.is_object()) return true;
    for (const Value& name : schema.value("required", Value::array())) {
      if (!value.contains(name.get<std::string>())) return false;
    }
    const Value properties = schema.value("properties", Value::object());
    for (const auto& [name, member] : value.items()) {
      if (properties.contains(name)) {
        if (!Holds(properties[name], member)) return false;
      } else if (schema.contains("additionalProperties") &&
                 !Holds(schema["additionalProperties"], member)) {
        return false;
      }
    }
    return true;
  }

  Value root_;
};

}  // namespace rullama::constraint
