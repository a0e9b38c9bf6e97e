#include "server/media_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "server/base64.h"

namespace rullama::server {
namespace {

using nlohmann::json;

struct Detail {
  std::string_view name;
  int64_t image_tokens;  // as Medium::image_tokens
};
constexpr std::array<Detail, 4> kDetails = {{
    {"auto", 0},
    {"low", 70},
    {"high", 560},
    {"original", 1120},
}};

// Whether a file begins as one of sound: WAV, FLAC, Ogg, MP3.
bool BeginsAsSound(std::string_view file) {
  constexpr size_t kWaveAt = 8;
  const bool wave =
      file.starts_with("RIFF") && file.substr(std::min(kWaveAt, file.size())).starts_with("WAVE");
  const bool frame = file.size() > 1 && file[0] == '\xff' && (file[1] & 0xe0) == 0xe0 &&
                     !file.starts_with("\xff\xd8");  // not JPEG
  return wave || frame || file.starts_with("fLaC") || file.starts_with("OggS") ||
         file.starts_with("ID3");
}

// Appends a medium whose bytes are given as base64.
void Append(FieldReader& fields, const std::string& place, std::string_view base64, Medium medium,
            std::vector<Medium>& media) {
  if (media.size() == kMaxMedia) {
    return fields.Fail(
        "invalid_value", place,
        fmt::format("is one picture or sound too many; expected at most {}", kMaxMedia));
  }
  auto bytes = FromBase64(base64);
  if (!bytes || bytes->empty()) {
    return fields.Fail("invalid_value", place, "is not the base64 text of a file");
  }
  medium.bytes = *std::move(bytes);
  media.push_back(std::move(medium));
}

int64_t ImageTokensOf(FieldReader& members) {
  const auto detail = members.Text("detail");
  if (!detail) return 0;
  const auto* found = std::ranges::find(kDetails, *detail, &Detail::name);
  if (found != kDetails.end()) return found->image_tokens;
  members.Fail("invalid_value", "detail", "is not one of auto, low, high, original");
  return 0;
}

// A picture by its URL: data:image/png;base64,iVBOR...
void ReadUrl(FieldReader& fields, const std::string& place, const std::string& url,
             int64_t image_tokens, std::vector<Medium>& media) {
  const size_t comma = url.find(',');
  const std::string_view head = std::string_view(url).substr(0, std::min(comma, url.size()));
  if (!url.starts_with("data:")) {
    return fields.Fail("unsupported_value", place,
                       "is not a data: URL, and nothing is downloaded; send the picture itself as "
                       "data:image/png;base64,...");
  }
  if (comma == std::string::npos || !head.ends_with(";base64")) {
    return fields.Fail("invalid_value", place, "is a data: URL without base64 data");
  }
  Append(fields, place, std::string_view(url).substr(comma + 1),
         {.kind = MediaKind::kPicture, .image_tokens = image_tokens}, media);
}

// image_url of a part: a text, or an object with url and detail.
void ReadPicture(FieldReader& fields, const std::string& place, const json& part,
                 std::vector<Medium>& media) {
  const std::string at = place + ".image_url";
  const auto found = part.find("image_url");
  if (found != part.end() && found->is_object()) {
    FieldReader members(*found, at + ".");
    const auto url = members.Text("url");
    const int64_t image_tokens = ImageTokensOf(members);
    if (!url) members.Fail("missing_required_parameter", "url", "is missing");
    fields.Fail(members.error());
    if (!fields.error()) ReadUrl(fields, at + ".url", *url, image_tokens, media);
    return;
  }
  FieldReader members(part, place + ".");
  const auto url = members.Text("image_url");
  const int64_t image_tokens = ImageTokensOf(members);
  if (!url) members.Fail("missing_required_parameter", "image_url", "is missing");
  fields.Fail(members.error());
  if (!fields.error()) ReadUrl(fields, at, *url, image_tokens, media);
}

void ReadSound(FieldReader& fields, const std::string& place, const json& part,
               std::vector<Medium>& media) {
  FieldReader outer(part, place + ".");
  const json* audio = outer.Object("input_audio");
  if (audio == nullptr) outer.Fail("missing_required_parameter", "input_audio", "is missing");
  fields.Fail(outer.error());
  if (audio == nullptr) return;
  FieldReader members(*audio, place + ".input_audio.");
  const auto data = members.Text("data");
  if (!data) members.Fail("missing_required_parameter", "data", "is missing");
  fields.Fail(members.error());
  if (!data) return;
  Append(fields, place + ".input_audio.data", *data, {.kind = MediaKind::kSound}, media);
}

json PartOf(MediaKind kind) { return {{"type", kind == MediaKind::kPicture ? "image" : "audio"}}; }

size_t CountMedia(const json& message) {
  const json& content = message["content"];
  if (!content.is_array()) return 0;
  return static_cast<size_t>(
      std::ranges::count_if(content, [](const json& part) { return part["type"] != "text"; }));
}

}  // namespace

bool IsMediaPart(std::string_view type) {
  return type == "image_url" || type == "input_image" || type == "input_audio";
}

json ReadMediaPart(FieldReader& fields, const std::string& place, const json& part,
                   std::vector<Medium>& media) {
  const bool sound = part.at("type") == "input_audio";
  if (sound) {
    ReadSound(fields, place, part, media);
  } else {
    ReadPicture(fields, place, part, media);
  }
  return PartOf(sound ? MediaKind::kSound : MediaKind::kPicture);
}

json ReadPictureBytes(FieldReader& fields, const std::string& place, std::string_view base64,
                      std::vector<Medium>& media) {
  Append(fields, place, base64, {.kind = MediaKind::kPicture}, media);
  return PartOf(MediaKind::kPicture);
}

json ReadMediaList(FieldReader& fields, const std::string& place, const json& list,
                   std::vector<Medium>& media) {
  json parts = json::array();
  if (!list.is_array()) {
    fields.Fail("invalid_type", place, "is not a list");
    return parts;
  }
  for (size_t i = 0; i < list.size() && !fields.error(); ++i) {
    const std::string at = fmt::format("{}[{}]", place, i);
    if (!list[i].is_string()) {
      fields.Fail("invalid_type", at, "is not a text");
      break;
    }
    Append(fields, at, list[i].get_ref<const std::string&>(), {}, media);
    if (fields.error()) break;
    Medium& medium = media.back();
    if (BeginsAsSound(medium.bytes)) medium.kind = MediaKind::kSound;
    parts.push_back(PartOf(medium.kind));
  }
  return parts;
}

void KeepMediaOf(const json& messages, const std::vector<size_t>& kept,
                 std::vector<Medium>& media) {
  std::vector<Medium> left;
  size_t next = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    const size_t count = CountMedia(messages[i]);
    const bool stays = std::ranges::find(kept, i) != kept.end();
    for (size_t k = 0; k < count && next + k < media.size() && stays; ++k) {
      left.push_back(std::move(media[next + k]));
    }
    next += count;
  }
  media = std::move(left);
}

}  // namespace rullama::server
