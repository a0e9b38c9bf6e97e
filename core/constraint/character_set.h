// Sets of characters that fill most of a string, and whose tokens are therefore known in advance.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rullama::constraint {

enum class CharacterSet : uint8_t {
  kNone,
  kJsonPlain,  // of a JSON string, without escapes: not ", \ or a control character
  kRawPlain,   // all but <
};
inline constexpr size_t kCharacterSets = 3;

// Whether characters of the set begin with this byte, if they are valid UTF-8.
constexpr bool MayBegin(CharacterSet set, uint8_t byte) {
  switch (set) {
    case CharacterSet::kNone:
      return false;
    case CharacterSet::kJsonPlain:
      return byte != '"' && byte != '\\' && byte >= 0x20;
    case CharacterSet::kRawPlain:
      return byte != '<';
  }
  return false;
}

}  // namespace rullama::constraint
