// The members of requests that say how tokens are drawn and where an answer ends. Both APIs have
// them, in the body or in `options`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/request.h"
#include "server/field_reader.h"

namespace rullama::server {

inline constexpr int64_t kMaxTopLogprobs = 20;

// The numbers of sampler_settings.def, each within its range, and seed. top_k of -1 is off, as 0
// is.
void ReadSampling(FieldReader& fields, SamplingOptions& sampling);
// id_slot: the slot to run in, -1 for any.
int32_t ReadSlot(FieldReader& fields, int64_t slots);
// The member `name`, a number of tokens from 1 on; -1: as many as fit into a slot.
std::optional<int64_t> ReadMaxTokens(FieldReader& fields, std::string_view name, int64_t capacity);
// These numbers have no effect: the model denoises canvases.
void IgnoreSampling(FieldReader& fields);

// logit_bias: token id -> -100 (bans) to 100.
void ReadBias(FieldReader& fields, std::map<int32_t, float>& biases);

// stop: a text or up to 16, each of 1 to 256 bytes.
void ReadStop(FieldReader& fields, std::vector<std::string>& stops);
// stop_sequences of Anthropic's API: a list of such texts.
void ReadStopSequences(FieldReader& fields, std::vector<std::string>& stops);

// A list of token ids, not empty and not negative. `name` is its place in errors.
std::vector<int32_t> ReadIds(FieldReader& fields, std::string_view name,
                             const nlohmann::json& list);

}  // namespace rullama::server
