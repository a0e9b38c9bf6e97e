// Text from elsewhere (a model file, a plugin, an argument) made fit to be shown on a terminal: it
// can neither move the cursor nor forge a line, and it has a limit.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rullama {

// `text` with line breaks and tabs as spaces, and with escapes such as \x1b for control characters,
// bytes that are not UTF-8, and characters that reorder a line (\u202e). Other UTF-8 stays as it
// is. The middle of a text longer than `limit` bytes is replaced by a note of how much was left
// out; escapes and the note come on top of `limit`.
std::string Printable(std::string_view text, size_t limit);

// The whole of `text` in double quotes, with \n for line breaks, a backslash before quotes and
// backslashes, and \xHH for other control bytes: what YAML and the text form of graphs read.
std::string QuotedText(std::string_view text);

// A name from a foreign file, fit for a message: Printable() with a limit of 200 bytes.
std::string ShownName(std::string_view text);

}  // namespace rullama
