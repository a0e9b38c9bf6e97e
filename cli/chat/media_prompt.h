// Prompts of texts, pictures and sounds, for `logits --parts`.
// Thread safety: none; one thread uses a session.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/runtime/soft_rows.h"
#include "engine/media/request_media.h"
#include "engine/model_session.h"

namespace rullama::cli {

// A prompt with decoded media.
struct MediaPrompt {
  std::vector<int32_t> ids;  // SoftRowId for a soft token
  std::vector<PlacedMedium> media;
  std::vector<std::string> files;  // of the media
};

// Reads a JSON list of texts, {"image": FILE} and {"audio": FILE}, where "image" may be accompanied
// by "image_tokens". Markers in the texts are recognised; BOS is added once. Errors: input.parts;
// those of DecodeMedia, PlaceMedia and Tokenizer::Encode.
Result<MediaPrompt> ReadParts(const std::string& json, const LoadedModel& model);

// The most rows of a step with soft tokens: `chunk`, or more where the model reads a picture of the
// prompt in one step.
int64_t MediaRowsOf(const MediaPrompt& prompt, const ModelFacts& facts, int64_t chunk);

// Runs the prompt through slot 0 from an empty cache. Calls `on_rows` with the logits [rows,
// vocabulary] of one step after the other. The session has GraphOutputs::kAllLogits and media_rows.
// Errors: context.overflow, run.cancelled, backend.nan; those of MediaEncoder::Encode.
Status ScoreMediaPrompt(ModelSession& engine, const MediaPrompt& prompt,
                        const std::function<Status(std::span<const float> logits)>& on_rows);

}  // namespace rullama::cli
