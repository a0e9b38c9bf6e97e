// JSON as text. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace rullama::cli {

// In one line, invalid UTF-8 replaced.
inline std::string JsonText(const nlohmann::json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

// With the end of the line.
inline std::string JsonLine(const nlohmann::json& value) { return JsonText(value) + "\n"; }

}  // namespace rullama::cli
