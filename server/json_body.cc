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

// Writes the value at a path as text, as its parts are read.
class OrderedCopy : public nlohmann::json_sax<json> {
 public:
  explicit OrderedCopy(const std::vector<std::string>& path) : path_(path) {}
  [[nodiscard]] std::string text() && { return std::move(text_); }

  bool null() override { return Value("null"); }
  bool boolean(bool value) override { return Value(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Value(json(value).dump()); }
  bool number_unsigned(number_unsigned_t value) override { return Value(json(value).dump()); }
  bool number_float(number_float_t /*value*/, const string_t& spelt) override {
    return Value(spelt);
  }
  bool string(string_t& value) override { return Value(json(value).dump()); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*size*/) override { return Open('{'); }
  bool end_object() override { return Close('}'); }
  bool start_array(size_t /*size*/) override { return Open('['); }
  bool end_array() override { return Close(']'); }
  bool key(string_t& name) override {
    if (copying_ > 0) {
      Separate();
      text_ += json(name).dump() + ":";
      after_key_ = true;
    } else {
      at_name_ = matched_ == depth_ - 1 && name == path_[matched_];
    }
    return true;
  }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*failure*/) override {
    return false;
  }

 private:
  // Whether the value that begins now is the one that is looked for, or leads to it.
  bool TakeName() {
    const bool found = at_name_;
    at_name_ = false;
    if (found) ++matched_;
    return found;
  }
  void Separate() {
    if (!after_key_ && !first_) text_ += ',';
    after_key_ = false;
    first_ = false;
  }
  // Reading ends with the value that was looked for.
  bool Value(const std::string& value) {
    if (copying_ == 0) {
      if (!TakeName() || matched_ < path_.size()) return true;
      text_ = value;
      return false;
    }
    Separate();
    text_ += value;
    return true;
  }
  bool Open(char bracket) {
    ++depth_;
    if (copying_ == 0 && (!TakeName() || matched_ < path_.size())) return true;
    if (copying_ > 0) Separate();
    text_ += bracket;
    first_ = true;
    ++copying_;
    return true;
  }
  bool Close(char bracket) {
    --depth_;
    if (copying_ == 0) return true;
    text_ += bracket;
    first_ = false;
    return --copying_ > 0;
  }

  const std::vector<std::string>& path_;
  std::string text_;
  size_t depth_ = 0;    // of open objects and lists
  size_t matched_ = 0;  // names of the path that have led here
  size_t copying_ = 0;  // open objects and lists of the value
  bool at_name_ = false;
  bool first_ = true;  // nothing has been written since the bracket
  bool after_key_ = false;
};

}  // namespace

std::string OrderedText(std::string_view body, const std::vector<std::string>& path) {
  OrderedCopy copy(path);
  json::sax_parse(body.begin(), body.end(), &copy);
  return std::move(copy).text();
}

ApiResult<json> ParseBody(std::string_view body) {
  if (body.empty()) {
    return tl::unexpected(
        MakeApiError("json.syntax", "the request has no body, expected a JSON object; send one"));
  }
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
