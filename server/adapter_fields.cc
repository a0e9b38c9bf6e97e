#include "server/adapter_fields.h"

#include <fmt/format.h>

#include <limits>
#include <string>

#include "core/config/range.h"
#include "engine/adapters_in_force.h"

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
  const auto id =
      inner.Integer("id", std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  constexpr double kAny = std::numeric_limits<double>::max();
  const auto scale = inner.Number("scale", Reals(-kAny, kAny));  // FindAdapterFault() has the range
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
  for (size_t i = 0; i < list.size() && !fields.error(); ++i) {
    scales.push_back(ReadOne(fields, list[i], fmt::format("{}[{}]", place, i), context));
  }
  if (fields.error()) return scales;
  if (const auto fault = FindAdapterFault(scales, context.adapters)) {
    fields.Fail("invalid_value", fmt::format("{}[{}].{}", place, fault->index, fault->member),
                fault->what);
  }
  return scales;
}

std::optional<std::vector<AdapterScale>> AdaptersOfName(const BodyContext& context) {
  if (context.adapter) return std::vector{*context.adapter};
  if (context.chooses_adapters) return context.adapters_in_force;
  return std::nullopt;
}

std::optional<std::vector<AdapterScale>> ReadAdapters(FieldReader& fields,
                                                      const BodyContext& context) {
  const json* list = fields.Find(kLora);
  if (list == nullptr) {
    return AdaptersOfName(context);
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
