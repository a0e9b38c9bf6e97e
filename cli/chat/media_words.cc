#include "cli/chat/media_words.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace rullama::cli {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

struct Ending {
  std::string_view text;
  FileKind kind;
};
constexpr Ending kEndings[] = {
    {".jpg", FileKind::kPicture},  {".jpeg", FileKind::kPicture}, {".png", FileKind::kPicture},
    {".webp", FileKind::kPicture}, {".gif", FileKind::kPicture},  {".bmp", FileKind::kPicture},
    {".heic", FileKind::kPicture}, {".heif", FileKind::kPicture}, {".avif", FileKind::kPicture},
    {".wav", FileKind::kSound},    {".flac", FileKind::kSound},   {".ogg", FileKind::kSound},
    {".mp3", FileKind::kSound},    {".mp4", FileKind::kVideo},    {".mkv", FileKind::kVideo},
    {".webm", FileKind::kVideo},   {".mov", FileKind::kVideo},    {".avi", FileKind::kVideo},
};

bool IsQuote(char c) { return c == '\'' || c == '"'; }

// The length of the word that `text` begins with: up to the quotation mark that closes it, or to
// white space without a backslash in front.
size_t WordLength(std::string_view text) {
  if (IsQuote(text.front())) {
    const size_t close = text.find(text.front(), 1);
    if (close != std::string_view::npos) return close + 1;
  }
  size_t end = 0;
  while (end < text.size() && kWhiteSpace.find(text[end]) == std::string_view::npos) {
    end += text[end] == '\\' ? 2 : 1;
  }
  return std::min(end, text.size());
}

std::string WithoutSpaceAround(std::string_view text) {
  const size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1));
}

}  // namespace

std::string_view NameOf(FileKind kind) {
  switch (kind) {
    case FileKind::kPicture:
      return "picture";
    case FileKind::kSound:
      return "sound";
    case FileKind::kVideo:
      return "video";
  }
  return "";
}

std::optional<FileKind> KindOfFileName(std::string_view path) {
  std::string lower(path);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Ending& ending : kEndings) {
    if (lower.ends_with(ending.text)) return ending.kind;
  }
  return std::nullopt;
}

std::string UnquotedWord(std::string_view word) {
  const bool quoted = word.size() >= 2 && IsQuote(word.front()) && word.back() == word.front();
  if (quoted) return std::string(word.substr(1, word.size() - 2));
  std::string plain;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '\\' && i + 1 < word.size()) ++i;
    plain += word[i];
  }
  return plain;
}

MessageWithMedia TakeDroppedMedia(std::string_view message,
                                  const std::function<bool(const std::string& path)>& exists) {
  MessageWithMedia found;
  std::string text;
  while (!message.empty()) {
    const size_t word = std::min(message.find_first_not_of(kWhiteSpace), message.size());
    text += message.substr(0, word);
    message.remove_prefix(word);
    if (message.empty()) break;
    const size_t length = WordLength(message);
    std::string path = UnquotedWord(message.substr(0, length));
    const auto kind = path.starts_with('/') ? KindOfFileName(path) : std::nullopt;
    if (kind && exists(path)) {
      found.media.push_back({*kind, std::move(path)});
      message.remove_prefix(length);
      continue;
    }
    const size_t plain = std::min(message.find_first_of(kWhiteSpace), message.size());
    text += message.substr(0, plain);
    message.remove_prefix(plain);
  }
  found.text = found.media.empty() ? text : WithoutSpaceAround(text);
  return found;
}

}  // namespace rullama::cli
