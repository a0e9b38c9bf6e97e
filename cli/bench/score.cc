#include "cli/bench/score.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/terminal/signals.h"
#include "core/runtime/output_names.h"
#include "core/runtime/sequence_feeder.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

constexpr int64_t kMaxLogitsOfStep = int64_t{16} << 20;  // 64 MiB of f32

}  // namespace

Status CheckLength(const ModelSession& engine, size_t tokens) {
  if (std::cmp_less_equal(tokens, engine.capacity())) return OkStatus();
  return MakeError(ErrorKind::kRuntime, "context.overflow",
                   "{} tokens do not fit into the context, which holds {}; raise --ctx-size",
                   tokens, engine.capacity());
}

Status CheckIds(const ModelSession& engine, std::span<const int32_t> ids) {
  RL_RETURN_IF_ERROR(CheckLength(engine, ids.size()));
  for (const int32_t id : ids) {
    if (id >= 0 && id < engine.model().facts().vocabulary) continue;
    return MakeError(ErrorKind::kUsage, "tokenizer.id",
                     "token id {} is outside the vocabulary of {} tokens", id,
                     engine.model().facts().vocabulary);
  }
  return OkStatus();
}

Status CheckLogits(std::span<const float> logits, int64_t first, size_t vocabulary) {
  const auto bad = std::ranges::find_if(logits, [](float x) { return std::isnan(x); });
  if (bad == logits.end()) return OkStatus();
  return MakeError(ErrorKind::kRuntime, "backend.nan",
                   "the logits after position {} are not numbers",
                   first + (bad - logits.begin()) / static_cast<int64_t>(vocabulary));
}

int64_t ScoreRows(int64_t vocabulary, int64_t max_t) {
  return std::clamp<int64_t>(kMaxLogitsOfStep / vocabulary, 1, max_t);
}

Status ScoreTokens(
    ModelSession& engine, std::span<const int32_t> ids,
    const std::function<Status(int64_t first, std::span<const float> logits)>& on_rows) {
  if (engine.model().facts().denoises()) {
    return MakeError(ErrorKind::kUsage, "model.canvas",
                     "this model denoises canvases and predicts no next token; `rullama logits "
                     "--canvas-ids` gives the logits of a canvas");
  }
  RL_RETURN_IF_ERROR(CheckIds(engine, ids));
  const auto vocabulary = static_cast<size_t>(engine.model().facts().vocabulary);
  engine.session().ForgetSlot(0);
  const auto cancelled = CancelFlag();
  std::vector<float> logits;
  size_t first = 0;
  const auto read_logits = [&](int64_t done, int64_t /*total*/) -> Status {
    logits.resize((static_cast<size_t>(done) - first) * vocabulary);
    RL_RETURN_IF_ERROR(engine.session().ReadOutput(output_names::kLogits,
                                                   std::as_writable_bytes(std::span(logits))));
    RL_RETURN_IF_ERROR(CheckLogits(logits, static_cast<int64_t>(first), vocabulary));
    RL_RETURN_IF_ERROR(on_rows(static_cast<int64_t>(first), logits));
    first = static_cast<size_t>(done);
    return OkStatus();
  };
  return SequenceFeeder(engine.session(), {.cancelled = cancelled.get()})
      .Feed(ids, DemandMode::kAllRows, DemandMode::kAllRows, read_logits);
}

Result<std::unique_ptr<ModelSession>> OpenScoringSession(const ConfigFlags& flags, int64_t chunk,
                                                         Console& console) {
  // The size of a step depends on the vocabulary, which is known once the file was read; reading
  // its header twice costs little.
  if (chunk == 0) {
    RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(flags));
    RL_ASSIGN_OR_RETURN(const ModelFile file, OpenModelFile(loaded.config.values().model.path));
    RL_ASSIGN_OR_RETURN(const auto model, OpenModel(*file.file));
    chunk = ScoreRows(model->facts().vocabulary,
                      loaded.config.values().context.prefill_chunk.value_or(kMinAutoRows));
  }
  return OpenModelSession(flags, {.outputs = GraphOutputs::kAllLogits, .max_t = chunk}, console);
}

}  // namespace rullama::cli
