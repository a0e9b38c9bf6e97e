#include "core/constraint/json_text.h"

#include <set>
#include <string>
#include <vector>

#include "core/base/printable.h"
#include "core/base/utf8.h"

namespace rullama::constraint {
namespace {

// Reads without building anything, and stops at the first offence. Values that are built recurse
// when they are destroyed, so depth is checked before.
class StrictCheck : public nlohmann::json_sax<Json> {
 public:
  [[nodiscard]] const Error& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(size_t /*size*/) override { return Enter(); }
  bool start_array(size_t /*size*/) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    return Refuse("schema.invalid",
                  fmt::format("an object has the key '{}' twice; give it once", ShownName(name)));
  }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*failure*/) override {
    return Refuse("schema.invalid", fmt::format("not valid JSON at byte {}", position));
  }

 private:
  bool Refuse(std::string_view id, std::string message) {
    error_ = {ErrorKind::kUsage, std::string(id), std::move(message)};
    return false;
  }
  bool Enter() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxJsonDepth) return true;
    return Refuse("schema.too_large",
                  fmt::format("nested more than {} deep; write it flatter", kMaxJsonDepth));
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string, std::less<>>> keys_;  // of each list or object that is open
  Error error_{ErrorKind::kUsage, "schema.invalid", "not valid JSON"};
};

}  // namespace

Result<Json> ParseSchemaText(std::string_view text, std::string_view what) {
  if (text.size() > kMaxSchemaBytes) {
    return MakeError(ErrorKind::kUsage, "schema.too_large", "{}: {} bytes, expected at most {}",
                     what, text.size(), kMaxSchemaBytes);
  }
  if (const auto bad = FindInvalidUtf8(text)) {
    return MakeError(ErrorKind::kUsage, "schema.invalid", "{}: not UTF-8 at byte {}", what, *bad);
  }
  StrictCheck check;
  if (!Json::sax_parse(text.begin(), text.end(), &check)) {
    return tl::unexpected(Error(check.error()).WithContext(what));
  }
  Json value = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!value.is_discarded()) return value;
  return MakeError(ErrorKind::kUsage, "schema.invalid", "{}: not valid JSON", what);
}

}  // namespace rullama::constraint
