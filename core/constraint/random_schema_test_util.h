// Schemas from a seed, for tests.
#pragma once

#include <array>
#include <random>
#include <string>
#include <string_view>

#include "core/constraint/json_text.h"

namespace rullama::constraint {

// Draws schemas of all supported keywords. They refer to #/$defs/d0 and #/$defs/d1, and to the
// root.
class RandomSchema {
 public:
  explicit RandomSchema(uint32_t seed) : random_(seed) {}

  Json Draw() {
    Json schema = Draw(3);
    if (schema.is_boolean()) schema = {{"type", "null"}};
    if (uses_defs_) schema["$defs"] = {{"d0", Object(2)}, {"d1", Leaf()}};
    return schema;
  }

 private:
  uint32_t Below(uint32_t n) { return random_() % n; }
  bool Chance(uint32_t one_in) { return Below(one_in) == 0; }

  Json Draw(int depth) {
    if (depth == 0) return Leaf();
    switch (Below(7)) {
      case 0:
        return Leaf();
      case 1:
      case 2:
        return List(depth);
      case 3:
        return {{"anyOf", {Draw(depth - 1), Draw(depth - 1)}}};
      case 4:
        return AllOf(depth);
      default:
        return Object(depth);
    }
  }

  Json Leaf() {
    switch (Below(9)) {
      case 0:
        return {{"type", "boolean"}};
      case 1:
        return {{"enum", {"a", "ab", 1, -2.5, nullptr, "\u0436\"\n"}}};
      case 2:
        return {{"const", {{"k", {1, "two"}}}}};
      case 3:
        return Number("integer", 1);
      case 4:
        return Number("number", 8);
      case 5:
        return {{"type", "string"}, {"pattern", Pattern()}};
      case 6:
        return {{"type", {"null", "string"}}, {"maxLength", 1 + Below(20)}};
      case 7:
        return {{"type", "string"}, {"minLength", Below(3)}};
      default:
        return true;
    }
  }

  Json Number(std::string_view type, double parts) {
    Json schema = {{"type", type}};
    const double low = (static_cast<double>(Below(4000)) - 2000) / parts;
    if (!Chance(3)) schema[Chance(2) ? "minimum" : "exclusiveMinimum"] = low;
    const double high = low + 1 + static_cast<double>(Below(3000)) / parts;
    if (!Chance(3)) schema[Chance(2) ? "maximum" : "exclusiveMaximum"] = high;
    return schema;
  }

  std::string Pattern() {
    constexpr auto kPatterns = std::to_array<std::string_view>(
        {"^[a-z]{2,4}$", "\\d+", "^(ab|c)*d?$", "x.y", "^\\S+@\\w+\\.[a-z]{2}$", "\"|\\\\", "",
         "^a", "b$", "[^a-y]"});
    return std::string(kPatterns[Below(kPatterns.size())]);
  }

  // References are inside of lists and objects only, so that values that contain themselves do so
  // with something in between.
  Json Inside(int depth) {
    if (!Chance(4)) return Draw(depth - 1);
    uses_defs_ = true;
    if (Chance(3)) return {{"anyOf", {{{"type", "null"}}, {{"$ref", "#"}}}}};
    const Json schema = {{"$ref", Chance(2) ? "#/$defs/d0" : "#/$defs/d1"}};
    if (Chance(2)) return {{"anyOf", {schema, Draw(depth - 1)}}};
    return schema;
  }

  Json List(int depth) {
    Json schema = {{"type", "array"}};
    if (Chance(3)) schema["prefixItems"] = {Inside(depth), Inside(depth)};
    if (!Chance(4)) schema["items"] = Inside(depth);
    const uint32_t least = Below(3);
    if (Chance(2)) schema["minItems"] = least;
    if (Chance(2)) schema["maxItems"] = least + Below(3);
    return schema;
  }

  Json Object(int depth) {
    constexpr auto kNames =
        std::to_array<std::string_view>({"a", "ab", "b\"", "\u0436", "", "long name"});
    Json schema = {{"type", "object"}, {"properties", Json::object()}};
    Json required = Json::array();
    for (const std::string_view name : kNames) {
      if (Chance(2)) continue;
      schema["properties"][std::string(name)] = Inside(depth);
      if (Chance(2)) required.push_back(name);
    }
    if (Chance(2)) schema["required"] = required;
    if (Chance(3)) schema["additionalProperties"] = Chance(2) ? Json(false) : Inside(depth);
    if (Chance(8)) schema.erase("properties");
    return schema;
  }

  Json AllOf(int depth) { return {{"allOf", {Object(depth), Object(depth)}}}; }

  std::mt19937 random_;
  bool uses_defs_ = false;
};

}  // namespace rullama::constraint
