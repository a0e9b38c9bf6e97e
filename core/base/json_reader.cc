#include "core/base/json_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "core/base/printable.h"
#include "core/base/utf8.h"

namespace rullama {
namespace {

using Kind = JsonFault::Kind;

// Reads without building anything. Stops at the first fault.
class Check : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Check(const JsonLimits& limits) : limits_(limits) {}
  [[nodiscard]] JsonFault fault() const { return fault_; }

  bool null() override { return Count(); }
  bool boolean(bool /*value*/) override { return Count(); }
  bool number_integer(number_integer_t /*value*/) override { return Count(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return Count(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return Count(); }
  bool string(string_t& /*value*/) override { return Count(); }
  bool binary(binary_t& /*value*/) override { return Count(); }
  bool start_object(size_t /*size*/) override { return Enter(); }
  bool start_array(size_t /*size*/) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    if (limits_.keys_may_repeat || keys_.back().insert(name).second) return true;
    constexpr size_t kMaxShown = 64;
    fault_ = {.kind = Kind::kDuplicateKey, .key = ShownName(name.substr(0, kMaxShown))};
    return false;
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
  bool Count() {
    if (++values_ <= limits_.values) return true;
    fault_ = {.kind = Kind::kValues, .limit = limits_.values};
    return false;
  }
  bool Enter() {
    keys_.emplace_back();
    if (keys_.size() <= limits_.depth) return Count();
    fault_ = {.kind = Kind::kDepth, .limit = limits_.depth};
    return false;
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  std::vector<std::set<std::string, std::less<>>> keys_;  // of each object or list that is open
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
  Check check(limits);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &check)) {
    return tl::unexpected(check.fault());
  }
  Json value = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return tl::unexpected(JsonFault{});
  return value;
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
