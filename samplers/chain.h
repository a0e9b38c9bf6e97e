// Samplers as ops of the model's graph: tokens are drawn on the device, and only token ids are
// copied to the host.
//
// Order: logit bias, penalties; then either greedy selection, or top_k, typical_p, top_p, min_p,
// temperature and a draw. A step that would change nothing adds no op. The draw of a row depends
// only on the seed and the row's position, so text does not change with slot, batch or chunk size.
//
// This chain is for the sequence of a session of its own: the settings are compiled into the graph.
// Rows with settings of their own: row_chain.h.
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
inline constexpr std::string_view kDrawKeyInput = "sampler.key";  // i32[R, 3], see row_uniform

// Values of the model's graph that the samplers read.
struct SamplerInputs {
  ValueId tokens = kNoValue;     // i32[T], the tokens of this step
  ValueId wanted = kNoValue;     // i32[R], the indices of the rows to draw for
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
  ValueId token = kNoValue;  // i32[R]; already the output "token"
  // For steps with one wanted row. Includes the key of the draw if tokens are drawn at random.
  std::vector<SamplerBinding> bindings = {};
};

// Appends the chain after `logits` (f32[T, vocabulary]). At run time a token of -1 means that
// every token was banned. Errors: those of SamplerSettings::Validate.
Result<Sampler> AppendSampler(GraphBuilder& builder, ValueId logits, const SamplerInputs& inputs,
                              const SamplerSettings& settings);

}  // namespace rullama
