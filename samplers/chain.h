// Samplers as ops of the model's graph: tokens are drawn on the device, and only token ids are
// copied to the host.
//
// Order: logit bias, penalties; then either greedy selection, or top_k, typical_p, top_p, min_p,
// temperature and a draw. A step that would change nothing adds no op. The draw of a row depends
// only on the seed and the row's position and slot, so text does not change with batch or chunk
// size.
//
// Thread safety: one thread per builder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/ir/builder.h"
#include "samplers/settings.h"

namespace rullama {

inline constexpr std::string_view kTokenOutput = "token";               // i32[R]
inline constexpr std::string_view kSamplerHistory = "sampler.history";  // i32[slots, look-back]
inline constexpr std::string_view kBiasIdsInput = "sampler.bias_ids";   // i32[n]
inline constexpr std::string_view kBiasInput = "sampler.bias";          // f32[n]

// Values of the model's graph that the samplers read.
struct SamplerInputs {
  ValueId tokens = kNoValue;     // i32[T], the tokens of this step
  ops::AttentionRows rows = {};  // pos and slot of each row, past of each slot
  int64_t slots = 1;
  int64_t capacity = 1;  // tokens per slot: the look-back if repeat_last_n is -1
};

// An input of the sampler and its contents, which are the same in every step.
struct SamplerBinding {
  std::string name;
  TensorType type;
  std::vector<std::byte> bytes;
};

struct Sampler {
  ValueId token = kNoValue;  // i32, one per row of the logits; already the output "token"
  std::vector<SamplerBinding> bindings = {};  // includes "seed" if tokens are drawn at random
};

// Appends the chain after `logits` (f32[rows, vocabulary]). At run time a token of -1 means that
// every token was banned. Errors: those of SamplerSettings::Validate.
Result<Sampler> AppendSampler(GraphBuilder& builder, ValueId logits, const SamplerInputs& inputs,
                              const SamplerSettings& settings);

// The two words of the input "seed", low word first.
[[nodiscard]] std::vector<std::byte> SeedBytes(uint64_t seed);

}  // namespace rullama
