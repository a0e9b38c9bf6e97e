#include "cli/commands/embed_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "cli/terminal/console.h"
#include "core/base/json_reader.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

constexpr size_t kMaxItemsBytes = size_t{1} << 30;
constexpr size_t kMaxItemDepth = 8;
constexpr std::string_view kStdin = "-";

tl::unexpected<Error> WrongLine(size_t number, std::string_view what) {
  return MakeError(ErrorKind::kUsage, "input.json", "line {} {}", number, what);
}

// Appends the files that a member of a line names, if it is there.
Status AddMedia(const json& line, size_t number, const char* member, MediaKind kind,
                std::vector<Medium>& media) {
  if (!line.contains(member)) return OkStatus();
  const json& files = line[member];
  const auto is_text = [](const json& one) { return one.is_string(); };
  if (!files.is_array() || !std::ranges::all_of(files, is_text)) {
    return WrongLine(number, fmt::format("has \"{}\" that is not a list of files", member));
  }
  for (const json& file : files) {
    media.push_back({.kind = kind, .path = file.get<std::string>()});
  }
  return OkStatus();
}

// A line of --jsonl: a string, or an object with "text", "images" and "audio".
Result<EmbedItem> ItemOfLine(std::string_view line, size_t number) {
  const auto value = ReadJson(line, {.depth = kMaxItemDepth});
  if (!value) {
    return MakeError(ErrorKind::kUsage, "input.json", "line {}: {}", number,
                     value.error().ToString());
  }
  if (value->is_string()) return EmbedItem{.text = value->get<std::string>()};
  if (!value->is_object()) return WrongLine(number, "is neither a string nor an object");
  EmbedItem item;
  RL_RETURN_IF_ERROR(AddMedia(*value, number, "images", MediaKind::kPicture, item.media));
  RL_RETURN_IF_ERROR(AddMedia(*value, number, "audio", MediaKind::kSound, item.media));
  if (!value->contains("text") && !item.media.empty()) return item;
  if (!value->contains("text") || !(*value)["text"].is_string()) {
    return WrongLine(number, "is an object without a string \"text\"");
  }
  item.text = (*value)["text"].get<std::string>();
  return item;
}

// Appends an item for each line of `content` that is not blank.
Status AddLines(std::string_view content, bool json_lines, std::vector<EmbedItem>& items) {
  for (size_t number = 1; !content.empty(); ++number) {
    std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(line.size() + 1, content.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (!json_lines) {
      items.push_back({.text = std::string(line)});
      continue;
    }
    RL_ASSIGN_OR_RETURN(EmbedItem item, ItemOfLine(line, number));
    items.push_back(std::move(item));
  }
  return OkStatus();
}

// Stdin is read once.
Status CheckDashes(const EmbedInputFlags& flags) {
  const auto texts = std::ranges::count(flags.texts, kStdin);
  const auto dashes = texts + std::ranges::count(flags.files, kStdin);
  const bool media = !flags.images.empty() || !flags.sounds.empty();
  if (dashes == 0 || (dashes == 1 && !media && (texts == 0 || flags.texts.size() == 1))) {
    return OkStatus();
  }
  return MakeError(ErrorKind::kUsage, "usage.option",
                   "- means stdin, which is read once; give it as the only TEXT or as one --file, "
                   "without --image and --audio");
}

// The one item of --image and --audio.
Result<std::vector<EmbedItem>> ItemWithMedia(const EmbedInputFlags& flags) {
  if (flags.texts.size() > 1 || !flags.files.empty() || flags.json_lines) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "--image and --audio go with one TEXT, or with none; for several vectors use "
                     "--jsonl with lines such as {{\"images\": [\"a.png\"], \"text\": \"...\"}}");
  }
  EmbedItem item{.text = flags.texts.empty() ? std::string() : flags.texts.front()};
  RL_RETURN_IF_ERROR(CheckUtf8(item.text, "the TEXT"));
  for (const std::string& path : flags.images) {
    item.media.push_back({.kind = MediaKind::kPicture, .path = path});
  }
  for (const std::string& path : flags.sounds) {
    item.media.push_back({.kind = MediaKind::kSound, .path = path});
  }
  return std::vector{std::move(item)};
}

}  // namespace

Result<std::vector<EmbedItem>> ReadEmbedItems(const EmbedInputFlags& flags) {
  RL_RETURN_IF_ERROR(CheckDashes(flags));
  if (!flags.images.empty() || !flags.sounds.empty()) return ItemWithMedia(flags);
  const bool only_dash = flags.texts.size() == 1 && flags.texts.front() == kStdin;
  std::vector<EmbedItem> items;
  if (!only_dash) {
    for (const std::string& text : flags.texts) items.push_back({.text = text});
  }
  for (const std::string& path : flags.files) {
    RL_ASSIGN_OR_RETURN(std::string content, path == kStdin ? ReadStdin(kMaxItemsBytes)
                                                            : ReadTextFile(path, kMaxItemsBytes));
    if (flags.json_lines) {
      RL_RETURN_IF_ERROR(AddLines(content, /*json_lines=*/true, items));
    } else {
      items.push_back({.text = std::move(content)});
    }
  }
  if (only_dash || (flags.texts.empty() && flags.files.empty())) {
    RL_ASSIGN_OR_RETURN(const std::string content, ReadStdin(kMaxItemsBytes));
    RL_RETURN_IF_ERROR(AddLines(content, flags.json_lines, items));
  }
  if (!items.empty()) return items;
  return MakeError(ErrorKind::kUsage, "usage.prompt",
                   "there is no text, expected one on the command line, in --file or on stdin");
}

Request RequestOf(const EmbedItem& item, const std::string& text_before) {
  json parts = json::array();
  const auto add_text = [&parts](const std::string& text) {
    if (!text.empty()) parts.push_back({{"type", "text"}, {"text", text}});
  };
  add_text(text_before);
  for (const Medium& medium : item.media) {
    parts.push_back({{"type", medium.kind == MediaKind::kSound ? "audio" : "image"}});
  }
  add_text(item.text);
  return {.messages = json::array({{{"role", "user"}, {"content", std::move(parts)}}}).dump(),
          .media = item.media};
}

}  // namespace rullama::cli
