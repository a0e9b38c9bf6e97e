#include "cli/media_input.h"

#include <fmt/format.h>

namespace rullama::cli {

nlohmann::json ContentOf(const std::string& text, std::span<const Medium> media, size_t first) {
  if (media.empty()) return text;
  nlohmann::json parts = nlohmann::json::array();
  for (size_t i = 0; i < media.size(); ++i) {
    const char* type = media[i].kind == MediaKind::kPicture ? "image" : "audio";
    parts.push_back({{"type", type}, {"medium", first + i}});
  }
  if (!text.empty()) parts.push_back({{"type", "text"}, {"text", text}});
  return parts;
}

std::string DescribeMedium(const Medium& medium, const MediumFacts& facts) {
  const std::string name = fmt::format("{} '{}'", NameOf(facts.kind), medium.path);
  if (facts.kind == MediaKind::kSound) {
    return fmt::format("{}: {:.1f} s, {} tokens", name, facts.seconds, facts.tokens);
  }
  return fmt::format("{}: {} x {} pixels, {} image tokens of at most {}", name, facts.width,
                     facts.height, facts.tokens, facts.image_tokens);
}

nlohmann::json MediumAsJson(const MediumFacts& facts) {
  nlohmann::json medium = {{"kind", NameOf(facts.kind)}, {"tokens", facts.tokens}};
  if (facts.kind == MediaKind::kSound) {
    medium["seconds"] = facts.seconds;
  } else {
    medium["image_tokens"] = facts.image_tokens;
    medium["width"] = facts.width;
    medium["height"] = facts.height;
  }
  return medium;
}

}  // namespace rullama::cli
