// Pictures and sound in the bodies of requests: parts of messages of the OpenAI API, and the lists
// `images` of the Ollama API. Nothing is downloaded: the bytes are in the body, as base64.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/request.h"
#include "server/field_reader.h"

namespace rullama::server {

// The most pictures and sounds of a request.
inline constexpr size_t kMaxMedia = 64;

// Whether a part of this type is a picture or a sound: image_url, input_image, input_audio.
bool IsMediaPart(std::string_view type);

// Adds the medium of such a part to `media` and returns the part for the engine. `place`: of the
// part in the body. Error if it has no base64 bytes, an unknown `detail`, or is one too many.
nlohmann::json ReadMediaPart(FieldReader& fields, const std::string& place,
                             const nlohmann::json& part, std::vector<Medium>& media);

// The same for a picture whose bytes stand at `place` as base64.
nlohmann::json ReadPictureBytes(FieldReader& fields, const std::string& place,
                                std::string_view base64, std::vector<Medium>& media);

// The same for a list of texts of base64, each of a picture or a sound; returns the parts.
nlohmann::json ReadMediaList(FieldReader& fields, const std::string& place,
                             const nlohmann::json& list, std::vector<Medium>& media);

// Removes the media of all messages but those in `kept`, by index.
void KeepMediaOf(const nlohmann::json& messages, const std::vector<size_t>& kept,
                 std::vector<Medium>& media);

}  // namespace rullama::server
