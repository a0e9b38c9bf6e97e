#include "server/json_body.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "core/base/printable.h"
#include "core/base/utf8.h"

namespace rullama::server {
namespace {

using nlohmann::json;

// Reads without building anything. Stops at the first value that is against a limit.
class LimitCheck : public nlohmann::json_sax<json> {
 public:
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }

  bool null() override { return Count(); }
  bool boolean(bool) override { return Count(); }
  bool number_integer(number_integer_t) override { return Count(); }
  bool number_unsigned(number_unsigned_t) override { return Count(); }
  bool number_float(number_float_t, const string_t&) override { return Count(); }
  bool string(string_t&) override { return Count(); }
  bool binary(binary_t&) override { return Count(); }
  bool start_object(size_t) override { return Enter(); }
  bool start_array(size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    return Refuse("json.duplicate_key",
                  fmt::format("an object has the key '{}' twice; give it once",
                              ShownName(name.substr(0, 64))));
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& failure) override {
    const std::string_view reason = failure.what();
    const bool utf8 = reason.find("surrogate") != std::string_view::npos;
    return Refuse(utf8 ? "json.utf8" : "json.syntax",
                  fmt::format("the body is not valid JSON: at byte {}{}; send one JSON object",
                              position, utf8 ? " half of a surrogate pair" : ""));
  }

 private:
  bool Refuse(std::string_view code, std::string message) {
    if (!error_) error_ = MakeApiError(code, std::move(message));
    return false;
  }
  bool Count() {
    if (++values_ <= kMaxJsonValues) return true;
    return Refuse("json.size",
                  fmt::format("the body has more than {} values; send less", kMaxJsonValues));
  }
  bool Enter() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxJsonDepth) return Count();
    return Refuse("json.depth", fmt::format("the body is nested more than {} deep; send it flatter",
                                            kMaxJsonDepth));
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string, std::less<>>> keys_;  // of each object or list that is open
  size_t values_ = 0;
  std::optional<ApiError> error_;
};

}  // namespace

ApiResult<json> ParseBody(std::string_view body) {
  if (FindInvalidUtf8(body)) {
    return tl::unexpected(
        MakeApiError("json.utf8", "the body is not UTF-8; send JSON encoded as UTF-8"));
  }
  LimitCheck check;
  if (!json::sax_parse(body.begin(), body.end(), &check)) {
    if (check.error()) return tl::unexpected(*check.error());
    return tl::unexpected(MakeApiError("json.syntax", "the body is not valid JSON"));
  }
  json value = json::parse(body.begin(), body.end());
  if (value.is_object()) return value;
  return tl::unexpected(
      MakeApiError("invalid_type",
                   fmt::format("the body is of type {}, expected an object", value.type_name())));
}

}  // namespace rullama::server
