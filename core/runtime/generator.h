// Feeds one sequence through a session, asks for the next token, and says why it stopped. Works on
// token ids; text is the caller's business. Borrows the session. Thread safety: one thread;
// `cancelled` may be set from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/base/stop_reason.h"
#include "core/runtime/sequence_feeder.h"
#include "core/runtime/session.h"

namespace rullama {

// Names of the outputs a generating graph has.
namespace output_names {
inline constexpr std::string_view kToken = "token";           // i32 [R]: the sampled token
inline constexpr std::string_view kLogitsSum = "logits_sum";  // f32 [R, 1]: NaN if any logit is
inline constexpr std::string_view kLogits = "logits";         // f32 [R or T, vocabulary]
}  // namespace output_names

struct GeneratorOptions {
  int32_t slot = 0;
  int64_t capacity = 0;                                      // most positions of the sequence
  int64_t vocabulary = std::numeric_limits<int32_t>::max();  // tokens are below it
  bool may_ban_all = false;  // a bias bans tokens; together with the model's, perhaps all
  std::vector<int32_t> end_tokens = {};
  const std::atomic<bool>* cancelled = nullptr;  // polled between steps
  // Rows evaluated so far and in all, after each chunk that Feed evaluates.
  std::function<void(int64_t done, int64_t total)> on_prefill = {};
};

class Generator {
 public:
  Generator(Session& session, GeneratorOptions options);

  // Appends tokens to the sequence and returns the token sampled after the last one. Errors:
  // context.overflow, run.cancelled, backend.nan (NaN logits), sampler.empty (every token banned),
  // backend.token (what the device chose is no token; kBackend).
  Result<int32_t> Feed(std::span<const int32_t> tokens);

  // Calls on_token with each token, beginning with `first` (from Feed), until a stop. End tokens
  // are not passed on. on_token returns false to stop. max_tokens < 0: until the context is full.
  struct Outcome {
    StopReason reason = StopReason::kEndOfGeneration;
    int64_t tokens = 0;  // passed to on_token
    int32_t end_token = -1;
  };
  Result<Outcome> Generate(int32_t first, int64_t max_tokens,
                           const std::function<bool(int32_t)>& on_token);

  [[nodiscard]] int64_t position() const { return feeder_.position(); }

 private:
  Result<int32_t> ReadToken();

  Session& session_;
  GeneratorOptions options_;
  SequenceFeeder feeder_;
};

}  // namespace rullama
