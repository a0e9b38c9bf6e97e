#include "server/adapter_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/config/range.h"

namespace rullama::server {
namespace {

using nlohmann::json;

constexpr size_t kMaxAdapters = 64;  // of a list, those with the scale 0 included
constexpr std::string_view kLora = "lora";

AdapterScale ReadOne(FieldReader& fields, const json& item, const std::string& place,
                     const BodyContext& context) {
  if (!item.is_object()) {
    fields.Fail("invalid_type", place, "is not an object with id and scale");
    return {};
  }
  if (context.adapters == 0) {
    fields.Fail("invalid_value", place + ".id", "is given, but no adapter is loaded");
    return {};
  }
  const std::string inside = fields.PlaceOf(place + ".");
  FieldReader inner(item, inside);
  const auto id = inner.Integer("id", 0, context.adapters - 1);
  const auto scale = inner.Number("scale", Reals(-kMaxAdapterScale, kMaxAdapterScale));
  if (!id) inner.Fail("missing_required_parameter", "id", "is missing; give the adapter's number");
  if (!scale) inner.Fail("missing_required_parameter", "scale", "is missing; give a number");
  for (const std::string& name : inner.Unknown()) {
    inner.Fail("unsupported_parameter", name.substr(inside.size()),
               "is not known, expected id and scale");
  }
  fields.Fail(inner.error());
  return {static_cast<int32_t>(id.value_or(0)), scale.value_or(0)};
}

}  // namespace

std::vector<AdapterScale> ReadAdapterList(FieldReader& fields, const json& list,
                                          std::string_view place, const BodyContext& context) {
  std::vector<AdapterScale> scales;
  if (!list.is_array()) {
    fields.Fail("invalid_type", place, "is not a list of objects with id and scale");
    return scales;
  }
  if (list.size() > kMaxAdapters) {
    fields.Fail("invalid_value", place,
                fmt::format("has {} adapters, expected at most {}", list.size(), kMaxAdapters));
    return scales;
  }
  int64_t in_force = 0;
  for (size_t i = 0; i < list.size() && !fields.error(); ++i) {
    const std::string at = fmt::format("{}[{}]", place, i);
    const AdapterScale one = ReadOne(fields, list[i], at, context);
    if (std::ranges::find(scales, one.id, &AdapterScale::id) != scales.end()) {
      fields.Fail("invalid_value", at + ".id", fmt::format("is {} once more", one.id));
    }
    if (one.scale != 0 && ++in_force > kMaxAdaptersInForce) {
      fields.Fail("unsupported_value", at + ".scale",
                  fmt::format("is not 0, but at most {} adapters are in force together",
                              kMaxAdaptersInForce));
    }
    scales.push_back(one);
  }
  return scales;
}

std::optional<std::vector<AdapterScale>> ReadAdapters(FieldReader& fields,
                                                      const BodyContext& context) {
  const json* list = fields.Find(kLora);
  if (list == nullptr) {
    if (context.adapter) return std::vector{*context.adapter};
    return std::nullopt;
  }
  if (context.adapter) {
    fields.Fail("invalid_value", kLora,
                "is given, and 'model' names an adapter too; leave one of them out");
  }
  if (context.adapters > 0 && !context.chooses_adapters) {
    fields.Fail("unsupported_value", kLora,
                "is given, but all requests have the adapters of this model; leave it out");
  }
  return ReadAdapterList(fields, *list, kLora, context);
}

}  // namespace rullama::server
