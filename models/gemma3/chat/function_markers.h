// The markers of FunctionGemma's calls, and the names that calls may have.
#pragma once

#include <string_view>

namespace rullama::gemma3 {

inline constexpr std::string_view kDeclarationBegin = "<start_function_declaration>";
inline constexpr std::string_view kDeclarationEnd = "<end_function_declaration>";
inline constexpr std::string_view kCallBegin = "<start_function_call>";
inline constexpr std::string_view kCallEnd = "<end_function_call>";
inline constexpr std::string_view kResponseBegin = "<start_function_response>";
inline constexpr std::string_view kResponseEnd = "<end_function_response>";
// Stands before and after each string.
inline constexpr std::string_view kEscape = "<escape>";

// Whether `c` may be in the name of a function, or begin it.
constexpr bool IsNameStart(char c) { return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_'; }
constexpr bool IsNamePart(char c) {
  return IsNameStart(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

}  // namespace rullama::gemma3
