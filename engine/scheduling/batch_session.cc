#include "engine/scheduling/batch_session.h"

#include <algorithm>
#include <cmath>

#include "core/ir/draft_names.h"
#include "core/ir/media_names.h"
#include "core/runtime/output_names.h"
#include "engine/media/soft_row_ids.h"

namespace rullama {
namespace {

template <typename T>
std::span<std::byte> BytesOf(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace

BatchSession::BatchSession(Session& session, const ProgramGraphs& graphs, int64_t vocabulary,
                           StepLane lane)
    : session_(session),
      vocabulary_(vocabulary),
      graphs_(graphs),
      lane_(lane),
      inputs_(vocabulary) {
  if (graphs_.adapters) adapter_inputs_.emplace(*graphs_.adapters);
  if (!graphs_.media) return;
  const Graph& graph = session.graph(*graphs_.media);
  soft_inputs_.emplace(graph.type(graph.Find(media_names::kSoft)).last().constant,
                       graph.Find(media_names::kLastSeen) != kNoValue);
}

Result<std::span<const RowResult>> BatchSession::Decode(std::span<const RowRequest> rows) {
  RL_RETURN_IF_ERROR(Start(rows));
  return Finish(rows);
}

Status BatchSession::Start(std::span<const RowRequest> rows) {
  step_.demand = DemandMode::kPerOutput;
  step_.tokens.clear();
  step_.pos.clear();
  step_.slot.clear();
  step_.wanted.clear();
  adapters_.clear();
  for (const RowRequest& row : rows) {
    const bool follows = !step_.slot.empty() && step_.slot.back() == row.slot;
    const int32_t position = follows ? step_.pos.back() + 1 : session_.past(row.slot);
    step_.wanted.push_back(static_cast<int32_t>(step_.tokens.size()));
    step_.tokens.push_back(row.token);
    step_.pos.push_back(position);
    step_.slot.push_back(row.slot);
    adapters_.push_back(row.adapters);
  }
  return StartDraw(rows);
}

const ProgramGraphs& BatchSession::GraphsFor(const AdaptersInForce* adapters) const {
  const bool several = graphs_.adapters && graphs_.adapters->NeedSeveral(adapters);
  return several ? *graphs_.adapters->several : graphs_;
}

Result<const ProgramGraphs*> BatchSession::SetAdapters() {
  if (!adapter_inputs_) return &graphs_;
  const auto needs_several = [this](const AdaptersInForce* adapters) {
    return graphs_.adapters->NeedSeveral(adapters);
  };
  const auto found = std::ranges::find_if(adapters_, needs_several);
  const bool several = found != adapters_.end();
  RL_RETURN_IF_ERROR(
      adapter_inputs_->Set(session_, adapters_, several ? graphs_.adapters->places : 1, lane_));
  return several ? graphs_.adapters->several.get() : &graphs_;
}

Result<const ProgramGraphs*> BatchSession::SetAdapters(const AdaptersInForce* adapters,
                                                       size_t rows) {
  adapters_.assign(rows, adapters);
  return SetAdapters();
}

Result<std::span<const RowResult>> BatchSession::Read(int32_t slot, std::span<const int32_t> chunk,
                                                      std::span<const RowRequest> draws,
                                                      const AdaptersInForce* adapters) {
  const DemandMode demand = draws.empty() ? DemandMode::kStateOnly : DemandMode::kPerOutput;
  step_.SetConsecutive(chunk, session_.past(slot), slot, demand);
  adapters_.assign(chunk.size(), adapters);
  if (draws.empty()) {
    RL_ASSIGN_OR_RETURN(const ProgramGraphs* graphs, SetAdapters());
    step_.graph = graphs->read;
    RL_RETURN_IF_ERROR(session_.Run(step_));
    return std::span<const RowResult>();
  }
  step_.wanted.assign(draws.size(), step_.wanted.front());
  RL_RETURN_IF_ERROR(StartDraw(draws));
  return Finish(draws);
}

Status BatchSession::ReadMedia(int32_t slot, std::span<const int32_t> chunk,
                               std::span<const SoftRows> media, const AdaptersInForce* adapters) {
  if (!soft_inputs_) {
    return MakeError(ErrorKind::kRuntime, "session.internal",
                     "a chunk with soft tokens for a program without a graph for media");
  }
  const int32_t past = session_.past(slot);
  RL_RETURN_IF_ERROR(soft_inputs_->Set(session_, media, past, std::ssize(chunk)));
  history_.assign(chunk.begin(), chunk.end());
  std::ranges::replace_if(history_, IsSoftRow, -1);
  RL_RETURN_IF_ERROR(session_.SetInput(media_names::kHistory, BytesOf(history_)));
  step_.SetConsecutive(chunk, past, slot, DemandMode::kStateOnly);
  std::ranges::replace_if(step_.tokens, IsSoftRow, 0);
  RL_ASSIGN_OR_RETURN(const ProgramGraphs* graphs, SetAdapters(adapters, chunk.size()));
  step_.graph = *graphs->media;
  return session_.Run(step_);
}

Status BatchSession::Evaluate(std::optional<ProgramGraphs::RowOutput> ProgramGraphs::*of,
                              int32_t slot, std::span<const int32_t> chunk,
                              const AdaptersInForce* adapters, std::vector<float>& rows) {
  step_.SetConsecutive(chunk, session_.past(slot), slot, DemandMode::kAllRows);
  RL_ASSIGN_OR_RETURN(const ProgramGraphs* graphs, SetAdapters(adapters, chunk.size()));
  const ProgramGraphs::RowOutput& output = *(graphs->*of);
  step_.graph = output.graph;
  RL_RETURN_IF_ERROR(session_.Run(step_));
  const Graph& ops = session_.graph(output.graph);
  const int64_t columns = ops.type(ops.outputs.front().value).last().constant;
  rows.resize(chunk.size() * static_cast<size_t>(columns));
  return session_.ReadOutput(output.output, BytesOf(rows));
}

Status BatchSession::PrepareDecode(const RowRequest& row) {
  const RowChainOptions chain = ChainFor(std::span(&row, 1));
  return session_.Prepare(1, DemandMode::kPerOutput, GraphsFor(row.adapters).Draw(chain));
}

RowChainOptions BatchSession::ChainFor(std::span<const RowRequest> rows) {
  samplings_.clear();
  RowChainOptions chain;
  for (const RowRequest& row : rows) {
    samplings_.push_back(row.sampling);
    chain.logprobs = chain.logprobs || row.top_logprobs >= 0;
  }
  chain.kind = KindFor(samplings_, vocabulary_);
  return chain;
}

Status BatchSession::StartDraw(std::span<const RowRequest> rows) {
  chain_ = ChainFor(rows);
  RL_RETURN_IF_ERROR(inputs_.Set(chain_.kind, samplings_));
  RL_RETURN_IF_ERROR(SetRowInputs(inputs_, session_, lane_));
  if (graphs_.drafts) RL_RETURN_IF_ERROR(SetPlaces(rows));
  RL_ASSIGN_OR_RETURN(const ProgramGraphs* graphs, SetAdapters());
  step_.graph = graphs->Draw(chain_);
  return lane_ ? session_.Start(*lane_, step_) : session_.Run(step_);
}

Status BatchSession::SetPlaces(std::span<const RowRequest> rows) {
  places_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t position = step_.pos[static_cast<size_t>(step_.wanted[i])];
    places_.push_back(DraftGraphs::PlaceOf(rows[i].slot, position));
  }
  return session_.SetInput(draft_names::kPlace, BytesOf(places_), lane_);
}

Result<std::span<const RowResult>> BatchSession::Finish(std::span<const RowRequest> rows) {
  if (lane_) RL_RETURN_IF_ERROR(session_.Finish(*lane_));
  tokens_.resize(rows.size());
  sums_.resize(rows.size());
  RL_RETURN_IF_ERROR(ReadOutput(output_names::kLogitsSum, BytesOf(sums_)));
  RL_RETURN_IF_ERROR(ReadOutput(output_names::kToken, BytesOf(tokens_)));
  results_.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t position = step_.pos[static_cast<size_t>(step_.wanted[i])];
    results_[i].token = CheckToken(rows[i], position, tokens_[i], sums_[i]);
  }
  if (chain_.logprobs) RL_RETURN_IF_ERROR(ReadLogprobs(rows));
  return results_;
}

Status BatchSession::ReadOutput(std::string_view name, std::span<std::byte> data) {
  return session_.ReadOutput(name, data, lane_);
}

Status BatchSession::ReadLogprobs(std::span<const RowRequest> rows) {
  const auto best = static_cast<size_t>(std::min(kTopLogprobs, vocabulary_));
  logprobs_.resize(rows.size());
  top_logprobs_.resize(rows.size() * best);
  top_tokens_.resize(rows.size() * best);
  RL_RETURN_IF_ERROR(ReadOutput(kLogprobOutput, BytesOf(logprobs_)));
  RL_RETURN_IF_ERROR(ReadOutput(kTopLogprobsOutput, BytesOf(top_logprobs_)));
  RL_RETURN_IF_ERROR(ReadOutput(kTopTokensOutput, BytesOf(top_tokens_)));
  for (size_t i = 0; i < rows.size(); ++i) {
    LogprobStep& step = results_[i].logprobs;
    step = {.drawn = {.token = tokens_[i], .logprob = logprobs_[i]}};
    const auto asked = static_cast<size_t>(std::max(rows[i].top_logprobs, 0));
    for (size_t k = 0; k < std::min(asked, best); ++k) {
      step.top.push_back({top_tokens_[i * best + k], top_logprobs_[i * best + k]});
    }
  }
  return OkStatus();
}

Result<int32_t> BatchSession::CheckToken(const RowRequest& row, int32_t position, int32_t token,
                                         float sum) const {
  if (!std::isfinite(sum)) {
    return MakeError(
        ErrorKind::kRuntime, "backend.nan",
        "the logits after position {} are not finite; the model file may be damaged, or "
        "the backend computes wrongly (compare with `--backend reference`)",
        position);
  }
  constexpr int32_t kNone = -1;  // what `categorical` gives where nothing is left
  if (token == kNone && (!row.sampling.bias.empty() || !row.sampling.mask.empty())) {
    return MakeError(ErrorKind::kRuntime, "sampler.empty",
                     "no token is left to choose from after position {}: every one is banned; "
                     "loosen logit_bias",
                     position);
  }
  if (token < 0 || token >= vocabulary_) {
    return MakeError(
        ErrorKind::kBackend, "backend.token",
        "plugin '{}' chose token {} after position {}, expected 0 to {}; this is a bug "
        "in the plugin (compare with `--backend reference`)",
        session_.plugin_name(), token, position, vocabulary_ - 1);
  }
  return token;
}

}  // namespace rullama
