// The sampler chain as ops of the model's graph: tokens are drawn on the device, and only token ids
// are copied to the host. Settings, seeds and masks are inputs of the graph with one row for each
// wanted row, so that rows of several requests share a step.
//
// Order: the steps of sampler_settings.def, from the mask on; then either greedy selection, or
// top_k, typical_p, top_p, min_p, temperature and a draw. A row's token depends only on its own
// logits, settings, seed, stream and position, so text does not change with slot, batch or chunk
// size. A step that is neutral for a row leaves its logits as they are, bit by bit, so that the
// kind of chain, which all rows of a step share, does not matter: a step takes the cheapest kind
// that all of its rows allow. Log-probabilities are further outputs (docs/adr/0011).
//
// Every kind keeps the tokens of each slot (state kSamplerHistory), so that a slot may come to a
// kind with penalties at any time.
//
// Thread safety: one thread per builder; RowInputs belongs to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/status.h"
#include "core/ir/builder.h"
#include "samplers/input_bytes.h"
#include "samplers/row_sampling.h"

namespace rullama {

inline constexpr std::string_view kTokenOutput = "token";               // i32[R]
inline constexpr std::string_view kSamplerHistory = "sampler.history";  // i32[slots, capacity]
inline constexpr std::string_view kDrawKeyInput = "sampler.key";  // i32[R, 3], see row_uniform

// Values of the model's graph that the samplers read.
struct SamplerInputs {
  ValueId tokens = kNoValue;     // i32[T], the tokens of this step
  ValueId wanted = kNoValue;     // i32[R], the indices of the rows to draw for
  ops::AttentionRows rows = {};  // pos and slot of each row, past of each slot
  int64_t slots = 1;
  int64_t capacity = 1;  // tokens per slot
};

// The settings that a chain's rows may have, in rising order.
enum class RowChainKind : uint8_t {
  kGreedy,  // greedy; no step changes a logit
  kPlain,   // also top_k of 1 to kMaxPlainTopK
  kEdited,  // also any steps
  kFull,    // anything
};
inline constexpr size_t kRowChainKinds = 4;
inline constexpr int64_t kMaxPlainTopK = 64;

// The first kind that can draw a row, or all rows.
[[nodiscard]] RowChainKind KindFor(const RowSampling& row, int64_t vocabulary);
[[nodiscard]] RowChainKind KindFor(std::span<const RowSampling> rows, int64_t vocabulary);

// Outputs in addition to kTokenOutput. Log-probabilities are natural logarithms of the softmax of
// the logits before masks, biases, penalties and temperature.
inline constexpr std::string_view kLogprobOutput = "logprob";           // f32[R, 1]: of the token
inline constexpr std::string_view kTopLogprobsOutput = "top_logprobs";  // f32[R, n], descending
inline constexpr std::string_view kTopTokensOutput = "top_tokens";      // i32[R, n]
// n of the outputs above, for a vocabulary that has as many.
inline constexpr int64_t kTopLogprobs = 20;

struct RowChainOptions {
  RowChainKind kind = RowChainKind::kPlain;
  bool logprobs = false;  // adds the outputs of log-probabilities
};

// Appends the chain after `logits` (f32[T, vocabulary]); returns i32[R], already the output
// kTokenOutput: -1 where every token was banned. Its inputs are those of RowInputs.
ValueId AppendRowChain(GraphBuilder& builder, ValueId logits, const SamplerInputs& inputs,
                       const RowChainOptions& options);

// Appends the tokens of a step to kSamplerHistory: what a graph does whose steps draw nothing, in
// place of a chain. Penalties do not count tokens below 0.
void AppendRowHistory(GraphBuilder& builder, const SamplerInputs& inputs);

// The inputs of a step's chain as the bytes of its tensors. Memory is reused from step to step.
class RowInputs {
 public:
  explicit RowInputs(int64_t vocabulary);

  // Takes the settings of a step's wanted rows, in their order. Errors (kUsage): sampler.mask for a
  // mask of another length, sampler.logit_bias for too many biases or a token outside the
  // vocabulary; sampler.kind (kRuntime) if `kind` cannot draw a row.
  Status Set(RowChainKind kind, std::span<const RowSampling> rows);

  // The inputs of the last Set(). Their bytes are valid until the next one.
  [[nodiscard]] std::span<const samplers::NamedBytes> inputs() const { return inputs_.inputs(); }

 private:
  [[nodiscard]] Status Check(RowChainKind kind, const RowSampling& row) const;

  int64_t vocabulary_;
  samplers::InputBytes inputs_;
};

}  // namespace rullama
