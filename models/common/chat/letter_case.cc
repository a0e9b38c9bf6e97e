#include "models/common/chat/letter_case.h"

namespace rullama::chat {
namespace {

// Changes the case of the letters from `first` to `last`.
std::string WithCase(std::string_view text, char first, char last) {
  std::string result(text);
  for (char& c : result) {
    if (c >= first && c <= last) c = static_cast<char>(c ^ 0x20);
  }
  return result;
}

}  // namespace

std::string ToUpper(std::string_view text) { return WithCase(text, 'a', 'z'); }
std::string ToLower(std::string_view text) { return WithCase(text, 'A', 'Z'); }

}  // namespace rullama::chat
