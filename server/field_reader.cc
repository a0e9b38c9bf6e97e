#include "server/field_reader.h"

#include <fmt/format.h>

namespace rullama::server {

using nlohmann::json;

bool IsEmptyText(const json& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

const json* FieldReader::Find(std::string_view name) {
  known_.emplace(name);
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> FieldReader::Number(std::string_view name, const RealRange& range) {
  const json* found = Find(name);
  if (found == nullptr) return std::nullopt;
  if (!found->is_number()) {
    WrongType(name, *found, "a number");
    return std::nullopt;
  }
  const double value = found->get<double>();
  if (range.Contains(value)) return value;
  Fail("invalid_value", name, fmt::format("is {}, expected {}", value, range.Describe()));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Integer(std::string_view name, int64_t low, int64_t high) {
  const json* found = Find(name);
  if (found == nullptr) return std::nullopt;
  const bool too_large =
      found->is_number_unsigned() &&
      found->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!found->is_number_integer()) {
    WrongType(name, *found, "a whole number");
    return std::nullopt;
  }
  if (!too_large && found->get<int64_t>() >= low && found->get<int64_t>() <= high) {
    return found->get<int64_t>();
  }
  Fail("invalid_value", name, fmt::format("is {}, expected {} to {}", found->dump(), low, high));
  return std::nullopt;
}

std::optional<bool> FieldReader::Boolean(std::string_view name) {
  const json* found = Find(name);
  if (found == nullptr) return std::nullopt;
  if (found->is_boolean()) return found->get<bool>();
  WrongType(name, *found, "true or false");
  return std::nullopt;
}

std::optional<std::string> FieldReader::Text(std::string_view name) {
  const json* found = Find(name);
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  WrongType(name, *found, "a text");
  return std::nullopt;
}

const json* FieldReader::Object(std::string_view name) {
  const json* found = Find(name);
  if (found == nullptr || found->is_object()) return found;
  WrongType(name, *found, "an object");
  return nullptr;
}

void FieldReader::Ignore(std::string_view name) {
  if (const auto known = known_.find(name); known != known_.end()) known_.erase(known);
}

void FieldReader::Fail(std::string_view code, std::string_view name, std::string_view message) {
  if (error_) return;
  const std::string place = PlaceOf(name);
  error_ = MakeApiError(code, fmt::format("'{}' {}", place, message), place);
}

void FieldReader::Fail(std::optional<ApiError> error) {
  if (!error_) error_ = std::move(error);
}

void FieldReader::WrongType(std::string_view name, const json& found, std::string_view expected) {
  Fail("invalid_type", name,
       fmt::format("is of type {}, expected {}", found.type_name(), expected));
}

std::vector<std::string> FieldReader::Unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name) && !value.is_null()) names.push_back(prefix_ + name);
  }
  return names;
}

}  // namespace rullama::server
