// Pictures and sounds that a prompt on the command line or a message of a chat has.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "engine/api/request.h"

namespace rullama::cli {

// The content of a message of a user: `media` first, then the text. Each part of a medium has the
// member "medium", its index counted from `first`.
nlohmann::json ContentOf(const std::string& text, std::span<const Medium> media, size_t first);

// "picture 'cat.png': 640 x 480 pixels, 130 image tokens of at most 140".
std::string DescribeMedium(const Medium& medium, const MediumFacts& facts);
// A medium of the record {"type": "final", ...} of --json.
nlohmann::json MediumAsJson(const MediumFacts& facts);

}  // namespace rullama::cli
