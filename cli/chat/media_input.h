// Pictures, sounds and videos that a prompt on the command line or a message of a chat has.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/chat/media_words.h"
#include "core/base/status.h"
#include "engine/api/request.h"

namespace rullama::cli {

// A file and what the model gets of it.
struct Attachment {
  NamedMedium file;
  std::vector<Medium> media = {};    // one, or the frames of a video
  std::vector<double> seconds = {};  // the times of frames
};

// Makes the frames of a video; other files are not opened. Errors: those of ReadVideoFrames, with
// the name of the file.
Result<Attachment> OpenAttachment(NamedMedium file);
Result<std::vector<Attachment>> OpenAttachments(std::span<const NamedMedium> files);

// The media of all attachments.
std::vector<Medium> MediaOf(std::span<const Attachment> attachments);

// The content of a message of a user: the attachments first, then the text. The part of each has
// the member "medium", the index of its first medium counted from `first`.
nlohmann::json ContentOf(const std::string& text, std::span<const Attachment> attachments,
                         size_t first);
// The number of media of a part of that content.
size_t CountMedia(const nlohmann::json& part);

// Lines such as "picture 'cat.png': 640 x 480 pixels, 130 image tokens of at most 140", one for
// each attachment. `facts`: those of MediaOf(attachments).
std::vector<std::string> DescribeAttachments(std::span<const Attachment> attachments,
                                             std::span<const MediumFacts> facts);
// A medium of the record {"type": "final", ...} of --json.
nlohmann::json MediumAsJson(const MediumFacts& facts);

}  // namespace rullama::cli
