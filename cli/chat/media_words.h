// Names of pictures, sounds and videos in messages that users type. Thread safety: pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rullama::cli {

enum class FileKind { kPicture, kSound, kVideo };

// "picture"
std::string_view NameOf(FileKind kind);

// The kind of medium that a file's name says it is: that of ".png" or ".WAV"; nothing for others.
std::optional<FileKind> KindOfFileName(std::string_view path);

struct NamedMedium {
  FileKind kind = FileKind::kPicture;
  std::string path;

  bool operator==(const NamedMedium&) const = default;
};

// A word as a shell reads it: without quotation marks around it, or without the backslashes in it.
std::string UnquotedWord(std::string_view word);

// Takes the media out of a message whose files were dropped on the terminal: its words that are
// absolute paths of pictures, sounds or videos, quoted, with backslashes, or as they are. `exists`
// says whether there is such a file; a path of none stays text.
struct MessageWithMedia {
  std::string text;
  std::vector<NamedMedium> media;
};
MessageWithMedia TakeDroppedMedia(std::string_view message,
                                  const std::function<bool(const std::string& path)>& exists);

}  // namespace rullama::cli
