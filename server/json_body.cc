#include "server/json_body.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/json_reader.h"

namespace rullama::server {
namespace {

using nlohmann::json;

ApiError ErrorOf(const JsonFault& fault) {
  switch (fault.kind) {
    case JsonFault::Kind::kUtf8:
      return MakeApiError("json.utf8",
                          fmt::format("the body {}; send JSON encoded as UTF-8", fault.ToString()));
    case JsonFault::Kind::kDepth:
      return MakeApiError("json.depth",
                          fmt::format("the body {}; send it flatter", fault.ToString()));
    case JsonFault::Kind::kValues:
      return MakeApiError("json.size", fmt::format("the body {}; send less", fault.ToString()));
    case JsonFault::Kind::kDuplicateKey:
      return MakeApiError("json.duplicate_key",
                          fmt::format("an object has the key '{}' twice; give it once", fault.key));
    case JsonFault::Kind::kNumber:
      return MakeApiError("json.syntax",
                          fmt::format("the body {}; send a smaller one", fault.ToString()));
    case JsonFault::Kind::kSyntax:
      break;
  }
  return MakeApiError("json.syntax",
                      fmt::format("the body {}; send one JSON object", fault.ToString()));
}

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
  auto value = ParseValue(body, "an object");
  if (!value || value->is_object()) return value;
  return tl::unexpected(
      MakeApiError("invalid_type",
                   fmt::format("the body is of type {}, expected an object", value->type_name())));
}

ApiResult<json> ParseValue(std::string_view body, std::string_view expected) {
  if (body.empty()) {
    return tl::unexpected(MakeApiError(
        "json.syntax",
        fmt::format("the request has no body, expected {} as JSON; send one", expected)));
  }
  auto read = ReadJson(body, {.depth = kMaxJsonDepth, .values = kMaxJsonValues});
  if (!read) return tl::unexpected(ErrorOf(read.error()));
  return *std::move(read);
}

}  // namespace rullama::server
