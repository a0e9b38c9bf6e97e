// UTF-8 validation and decoding, strict (RFC 3629: no overlong forms, no surrogates, <= U+10FFFF).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace rullama {

// Length in bytes (1-4) of the valid sequence at the start of `text`; 0 if there is none. If `text`
// ends inside a sequence that could still become valid, *incomplete (if given) is set to true.
size_t Utf8SequenceLength(std::string_view text, bool* incomplete = nullptr);

// Byte offset of the first invalid sequence, or nothing if all of `text` is valid.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

}  // namespace rullama
