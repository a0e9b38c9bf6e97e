// Texts, pictures and sounds that `rullama embed` reads. Thread safety: pure functions but for the
// files and stdin that they read.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "engine/api/request.h"

namespace rullama::cli {

// One vector's input: pictures, sounds, and a text after them, which may be empty.
struct EmbedItem {
  std::string text;
  std::vector<Medium> media = {};
};

struct EmbedInputFlags {
  std::vector<std::string> texts;   // without an option; a single "-" means stdin
  std::vector<std::string> files;   // --file; "-" means stdin
  std::vector<std::string> images;  // --image, of one item
  std::vector<std::string> sounds;  // --audio, of one item
  bool json_lines = false;          // --jsonl
};

// The items of the command line, of files and of stdin, in this order; at least one. With pictures
// or sounds there is one item, and stdin is not read. Errors (kUsage): usage.prompt if there are
// none, usage.option for media with several texts and for a "-" that is not alone, text.utf8 for a
// text with media, input.json; those of ReadTextFile and ReadStdin.
Result<std::vector<EmbedItem>> ReadEmbedItems(const EmbedInputFlags& flags);

// The content that Engine::EmbedContent() takes, with a text before the item's media, if any.
Request RequestOf(const EmbedItem& item, const std::string& text_before);

}  // namespace rullama::cli
