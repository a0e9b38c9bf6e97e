// Reads a prompt from its source and makes a request of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat/media_input.h"
#include "cli/terminal/console.h"
#include "engine/api/engine.h"

namespace rullama::cli {

// The size limit of a prompt, far above the context of every model.
inline constexpr size_t kMaxPromptBytes = size_t{256} << 20;

struct PromptFlags {
  std::optional<std::string> text;  // -p
  std::string path;                 // -f
  std::string ids_path;             // --prompt-ids
};

struct Prompt {
  std::string text;
  std::optional<std::vector<int32_t>> ids = {};  // instead of text
  std::vector<Attachment> attachments = {};      // --image, --audio, --video
};

// `text` with \n, \r, \t, \", \' and \\ replaced by what they stand for; other backslashes stay.
std::string Unescape(std::string_view text);

// -p, -f and text piped into stdin, in this order, blank lines between them. Nothing if there is
// none of them: time to chat. Errors: usage.prompt for flags that exclude each other, io.*,
// input.*, text.utf8 (with the byte offset).
Result<std::optional<Prompt>> ReadPrompt(const PromptFlags& flags);

// The request with a prompt on its own: as it is, or as the first turn of a conversation, in which
// the attachments stand before the text. Errors:
// usage.prompt for an empty list of ids, or for a video without a conversation; text.size.
Result<Request> WithPrompt(Request request, const Engine& engine, const Prompt& prompt);

}  // namespace rullama::cli
