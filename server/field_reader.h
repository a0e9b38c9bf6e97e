// Reads the members of a JSON object with types and ranges, and remembers which ones it knows.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/range.h"
#include "server/api_error.h"

namespace rullama::server {

// Some clients send "" for a member that they leave out.
[[nodiscard]] bool IsEmptyText(const nlohmann::json& value);

// The first error stays; values that are read after it do not matter. A member that is null is
// absent. `prefix` stands before names in errors: "stream_options.". The object has to outlive
// the reader. Thread safety: none.
class FieldReader {
 public:
  explicit FieldReader(const nlohmann::json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // The member, or null. Its name counts as known from then on.
  const nlohmann::json* Find(std::string_view name);
  std::optional<double> Number(std::string_view name, const RealRange& range);
  std::optional<int64_t> Integer(std::string_view name,
                                 int64_t low = std::numeric_limits<int64_t>::min(),
                                 int64_t high = std::numeric_limits<int64_t>::max());
  std::optional<bool> Boolean(std::string_view name);
  std::optional<std::string> Text(std::string_view name);
  const nlohmann::json* Object(std::string_view name);

  // The member has no effect: Unknown() names it.
  void Ignore(std::string_view name);

  // The place of a member in errors.
  [[nodiscard]] std::string PlaceOf(std::string_view name) const {
    return prefix_ + std::string(name);
  }
  void Fail(std::string_view code, std::string_view name, std::string_view message);
  // Adopts the error of a reader of a member.
  void Fail(std::optional<ApiError> error);
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }

  // The members that nobody asked for and those that were to be ignored, in order.
  [[nodiscard]] std::vector<std::string> Unknown() const;

 private:
  // Fails with what was found and what was expected.
  void WrongType(std::string_view name, const nlohmann::json& found, std::string_view expected);

  const nlohmann::json& object_;
  std::string prefix_;
  std::set<std::string, std::less<>> known_;
  std::optional<ApiError> error_;
};

}  // namespace rullama::server
