#include "cli/chat/media_input.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "cli/chat/video_frames.h"
#include "media/picture_size.h"

namespace rullama::cli {
namespace {

std::string Describe(const Attachment& attachment, std::span<const MediumFacts> facts) {
  const MediumFacts& first = facts.front();
  const std::string name =
      fmt::format("{} '{}'", NameOf(attachment.file.kind), attachment.file.path);
  if (attachment.file.kind == FileKind::kVideo) {
    const int64_t tokens =
        std::accumulate(facts.begin(), facts.end(), int64_t{0},
                        [](int64_t sum, const MediumFacts& frame) { return sum + frame.tokens; });
    return fmt::format(
        "{}: {} frames of {} x {} pixels, the last one after {:.1f} s, {} image tokens", name,
        facts.size(), first.width, first.height, attachment.seconds.back(), tokens);
  }
  if (attachment.file.kind == FileKind::kSound) {
    return fmt::format("{}: {:.1f} s, {} tokens", name, first.seconds, first.tokens);
  }
  return fmt::format("{}: {} x {} pixels, {} image tokens of at most {}", name, first.width,
                     first.height, first.tokens, first.image_tokens);
}

}  // namespace

Result<Attachment> OpenAttachment(NamedMedium file) {
  Attachment attachment{.file = std::move(file)};
  const std::string& path = attachment.file.path;
  if (attachment.file.kind != FileKind::kVideo) {
    const bool sound = attachment.file.kind == FileKind::kSound;
    attachment.media = {{.kind = sound ? MediaKind::kSound : MediaKind::kPicture, .path = path}};
    return attachment;
  }
  auto frames = ReadVideoFrames(path);
  if (!frames) {
    return tl::unexpected(std::move(frames).error().WithContext(fmt::format("video '{}'", path)));
  }
  for (VideoFrame& frame : *frames) {
    attachment.media.push_back(
        {.bytes = std::move(frame.png), .image_tokens = int64_t{kVideoFrameTokens}});
    attachment.seconds.push_back(frame.second);
  }
  return attachment;
}

Result<std::vector<Attachment>> OpenAttachments(std::span<const NamedMedium> files) {
  std::vector<Attachment> attachments;
  for (const NamedMedium& file : files) {
    RL_ASSIGN_OR_RETURN(attachments.emplace_back(), OpenAttachment(file));
  }
  return attachments;
}

std::vector<Medium> MediaOf(std::span<const Attachment> attachments) {
  std::vector<Medium> media;
  for (const Attachment& attachment : attachments) {
    media.insert(media.end(), attachment.media.begin(), attachment.media.end());
  }
  return media;
}

nlohmann::json ContentOf(const std::string& text, std::span<const Attachment> attachments,
                         size_t first) {
  if (attachments.empty()) return text;
  nlohmann::json parts = nlohmann::json::array();
  for (const Attachment& attachment : attachments) {
    switch (attachment.file.kind) {
      case FileKind::kPicture:
        parts.push_back({{"type", "image"}});
        break;
      case FileKind::kSound:
        parts.push_back({{"type", "audio"}});
        break;
      case FileKind::kVideo:
        parts.push_back({{"type", "video"}, {"seconds", attachment.seconds}});
        break;
    }
    parts.back()["medium"] = first;
    first += attachment.media.size();
  }
  if (!text.empty()) parts.push_back({{"type", "text"}, {"text", text}});
  return parts;
}

size_t CountMedia(const nlohmann::json& part) {
  if (!part.contains("medium")) return 0;
  return part.contains("seconds") ? part["seconds"].size() : 1;
}

std::vector<std::string> DescribeAttachments(std::span<const Attachment> attachments,
                                             std::span<const MediumFacts> facts) {
  std::vector<std::string> lines;
  for (const Attachment& attachment : attachments) {
    lines.push_back(Describe(attachment, facts.first(attachment.media.size())));
    facts = facts.subspan(attachment.media.size());
  }
  return lines;
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
