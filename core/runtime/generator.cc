#include "core/runtime/generator.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rullama {

Generator::Generator(Session& session, GeneratorOptions options)
    : session_(session),
      options_(std::move(options)),
      feeder_(session, {.slot = options_.slot, .cancelled = options_.cancelled}) {}

Result<int32_t> Generator::ReadToken() {
  float sum = 0;
  RL_RETURN_IF_ERROR(
      session_.ReadOutput(output_names::kLogitsSum, std::as_writable_bytes(std::span(&sum, 1))));
  if (!std::isfinite(sum)) {
    return MakeError(
        ErrorKind::kRuntime, "backend.nan",
        "the logits after position {} are not finite; the model file may be damaged, or "
        "the backend computes wrongly (compare with `--backend reference`)",
        position() - 1);
  }
  int32_t token = -1;
  RL_RETURN_IF_ERROR(
      session_.ReadOutput(output_names::kToken, std::as_writable_bytes(std::span(&token, 1))));
  constexpr int32_t kNone = -1;  // what `categorical` gives where nothing is left
  if (token == kNone && options_.may_ban_all) {
    return MakeError(ErrorKind::kRuntime, "sampler.empty",
                     "no token is left to choose from after position {}: every one is banned; "
                     "loosen logit_bias",
                     position() - 1);
  }
  if (token < 0 || token >= options_.vocabulary) {
    return MakeError(
        ErrorKind::kBackend, "backend.token",
        "plugin '{}' chose token {} after position {}, expected 0 to {}; this is a bug "
        "in the plugin (compare with `--backend reference`)",
        session_.plugin_name(), token, position() - 1, options_.vocabulary - 1);
  }
  return token;
}

Result<int32_t> Generator::Feed(std::span<const int32_t> tokens) {
  const auto total = static_cast<int64_t>(tokens.size());
  if (position() + total > options_.capacity) {
    return MakeError(ErrorKind::kRuntime, "context.overflow",
                     "{} tokens follow {} in the context, which holds {}; shorten the prompt",
                     total, position(), options_.capacity);
  }
  RL_RETURN_IF_ERROR(feeder_.Feed(tokens, DemandMode::kStateOnly, DemandMode::kPerOutput,
                                  [this](int64_t done, int64_t all) {
                                    if (options_.on_prefill) options_.on_prefill(done, all);
                                    return OkStatus();
                                  }));
  return ReadToken();
}

Result<Generator::Outcome> Generator::Generate(int32_t first, int64_t max_tokens,
                                               const std::function<bool(int32_t)>& on_token) {
  Outcome outcome;
  for (int32_t token = first;;) {
    if (std::ranges::find(options_.end_tokens, token) != options_.end_tokens.end()) {
      outcome.reason = StopReason::kEndOfGeneration;
      outcome.end_token = token;
      return outcome;
    }
    if (max_tokens >= 0 && outcome.tokens >= max_tokens) {
      outcome.reason = StopReason::kMaxTokens;
      return outcome;
    }
    ++outcome.tokens;
    if (!on_token(token)) {
      outcome.reason = StopReason::kStopped;
      return outcome;
    }
    if (feeder_.cancelled()) {
      outcome.reason = StopReason::kCancelled;
      return outcome;
    }
    if (max_tokens >= 0 && outcome.tokens >= max_tokens) {
      outcome.reason = StopReason::kMaxTokens;
      return outcome;
    }
    if (position() >= options_.capacity) {
      outcome.reason = StopReason::kContextFull;
      return outcome;
    }
    RL_RETURN_IF_ERROR(feeder_.RunStep(std::span(&token, 1), DemandMode::kPerOutput));
    RL_ASSIGN_OR_RETURN(token, ReadToken());
  }
}

}  // namespace rullama
