#include "core/runtime/sequence_feeder.h"

#include <algorithm>

#include "core/runtime/output_names.h"

namespace rullama {

SequenceFeeder::SequenceFeeder(Session& session, FeedOptions options)
    : session_(session), options_(options) {
  rows_.graph = options.graph;
}

Status SequenceFeeder::Feed(std::span<const int32_t> tokens, DemandMode demand, DemandMode last,
                            const OnStep& on_step) {
  const auto max_t = static_cast<size_t>(session_.max_t(options_.graph));
  for (size_t done = 0; done < tokens.size();) {
    if (cancelled()) {
      return MakeError(ErrorKind::kRuntime, "run.cancelled", "stopped after {} of {} tokens", done,
                       tokens.size());
    }
    const size_t count = std::min(max_t, tokens.size() - done);
    const bool is_last = done + count == tokens.size();
    RL_RETURN_IF_ERROR(RunStep(tokens.subspan(done, count), is_last ? last : demand));
    done += count;
    if (on_step) {
      RL_RETURN_IF_ERROR(on_step(static_cast<int64_t>(done), static_cast<int64_t>(tokens.size())));
    }
  }
  return OkStatus();
}

Result<int32_t> SequenceFeeder::NextToken(std::span<const int32_t> tokens) {
  RL_RETURN_IF_ERROR(Feed(tokens, DemandMode::kStateOnly, DemandMode::kPerOutput, {}));
  int32_t token = 0;
  RL_RETURN_IF_ERROR(
      session_.ReadOutput(output_names::kToken, std::as_writable_bytes(std::span(&token, 1))));
  return token;
}

Status SequenceFeeder::RunStep(std::span<const int32_t> tokens, DemandMode demand) {
  rows_.SetConsecutive(tokens, position(), options_.slot, demand);
  return session_.Run(rows_);
}

}  // namespace rullama
