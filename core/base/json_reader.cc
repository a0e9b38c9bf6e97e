#include "core/base/json_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/printable.h"
#include "core/base/utf8.h"

namespace rullama {
namespace {

using Kind = JsonFault::Kind;

// Builds the value of a text, and stops at the first fault: nothing is built beyond the limits.
template <typename Json>
class Builder : public nlohmann::json_sax<Json> {
  using Base = nlohmann::json_sax<Json>;
  using typename Base::binary_t;
  using typename Base::number_float_t;
  using typename Base::number_integer_t;
  using typename Base::number_unsigned_t;
  using typename Base::string_t;
  using Object = typename Json::object_t;
  static constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}
  [[nodiscard]] JsonFault fault() const { return fault_; }
  [[nodiscard]] Json TakeValue() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON has none
  bool start_object(size_t /*size*/) override { return Enter(Json::object()); }
  bool start_array(size_t /*size*/) override { return Enter(Json::array()); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    Object& object = open_.back().value->template get_ref<Object&>();
    if constexpr (kOrdered) {
      // The container of the library looks through all its members for each that is added.
      const bool known = !open_.back().names.insert(name).second;
      if (known && !limits_.keys_may_repeat) return RefuseSecond(name);
      member_ = known ? &object[name] : &object.emplace_back(std::move(name), nullptr).second;
      return true;
    } else {
      const auto [member, added] = object.try_emplace(std::move(name), nullptr);
      member_ = &member->second;
      return added || limits_.keys_may_repeat || RefuseSecond(name);
    }
  }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& failure) override {
    constexpr int kNumberOutOfRange = 406;
    if (failure.id == kNumberOutOfRange) {
      fault_ = {.kind = Kind::kNumber, .byte = position};
      return false;
    }
    const std::string_view reason = failure.what();
    const bool surrogate = reason.find("surrogate") != std::string_view::npos;
    fault_ = {.kind = surrogate ? Kind::kUtf8 : Kind::kSyntax, .byte = position};
    return false;
  }

 private:
  // A list or an object whose end has not been read. It stays where it is: nothing is added to the
  // one around it meanwhile.
  struct Open {
    Json* value;
    std::set<std::string, std::less<>> names = {};  // of the members of an ordered object
  };

  bool Add(Json value) { return Place(std::move(value)) != nullptr; }
  bool Enter(Json value) {
    if (open_.size() == limits_.depth) {
      fault_ = {.kind = Kind::kDepth, .limit = limits_.depth};
      return false;
    }
    Json* const placed = Place(std::move(value));
    if (placed != nullptr) open_.push_back({.value = placed});
    return placed != nullptr;
  }
  bool Leave() {
    open_.pop_back();
    return true;
  }
  // Null if there are too many values.
  Json* Place(Json value) {
    if (++values_ > limits_.values) {
      fault_ = {.kind = Kind::kValues, .limit = limits_.values};
      return nullptr;
    }
    if (!open_.empty() && open_.back().value->is_array()) {
      return &open_.back().value->emplace_back(std::move(value));
    }
    Json& place = open_.empty() ? root_ : *member_;
    place = std::move(value);
    return &place;
  }
  bool RefuseSecond(const string_t& name) {
    constexpr size_t kMaxShown = 64;
    fault_ = {.kind = Kind::kDuplicateKey, .key = ShownName(name.substr(0, kMaxShown))};
    return false;
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Open> open_;
  Json* member_ = nullptr;  // of the innermost object, whose value comes next
  size_t values_ = 0;
  JsonFault fault_;
};

template <typename Json>
JsonResult<Json> Read(std::string_view text, const JsonLimits& limits) {
  if (const auto bad = FindInvalidUtf8(text)) {
    return tl::unexpected(JsonFault{.kind = Kind::kUtf8, .byte = *bad});
  }
  // The library takes a NUL for the end of the text. JSON has none, not even in strings.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return tl::unexpected(JsonFault{.kind = Kind::kSyntax, .byte = nul + 1});
  }
  Builder<Json> builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return tl::unexpected(builder.fault());
  }
  return builder.TakeValue();
}

}  // namespace

std::string JsonFault::ToString() const {
  switch (kind) {
    case Kind::kUtf8:
      return fmt::format("is not UTF-8 (byte {})", byte);
    case Kind::kNumber:
      return fmt::format("has a number that is too large for a double and ends at byte {}", byte);
    case Kind::kDepth:
      return fmt::format("is nested more than {} deep", limit);
    case Kind::kValues:
      return fmt::format("has more than {} values", limit);
    case Kind::kDuplicateKey:
      return fmt::format("has the key '{}' twice in an object", key);
    case Kind::kSyntax:
      break;
  }
  return fmt::format("is not valid JSON (byte {})", byte);
}

JsonResult<nlohmann::json> ReadJson(std::string_view text, const JsonLimits& limits) {
  return Read<nlohmann::json>(text, limits);
}

JsonResult<nlohmann::ordered_json> ReadOrderedJson(std::string_view text,
                                                   const JsonLimits& limits) {
  return Read<nlohmann::ordered_json>(text, limits);
}

}  // namespace rullama
