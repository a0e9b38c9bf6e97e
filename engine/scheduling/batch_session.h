// Steps of a session that several requests share: one token, or several in a row, for each of
// several slots, or a chunk of one slot's prompt. Draws tokens with settings of their own for each
// row.
//
// Ownership: borrows the session, whose program is of GraphOutputs::kBatch, or any other if all
// steps draw nothing. Thread safety: one thread at a time. Errors: those of Session::Run, with
// which the whole step has failed; errors of single rows are in their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "core/runtime/soft_rows.h"
#include "engine/api/request.h"
#include "engine/model_program.h"
#include "engine/scheduling/row_adapter_inputs.h"
#include "samplers/row_chain.h"

namespace rullama {

// A row whose token is to be drawn.
struct RowRequest {
  int32_t slot = 0;
  int32_t token = 0;  // the row's own, in a decode step
  RowSampling sampling = {};
  int32_t top_logprobs = -1;                  // as Request::top_logprobs
  const AdaptersInForce* adapters = nullptr;  // null: none
};

struct RowResult {
  // Errors: backend.nan (NaN logits), sampler.empty (every token banned), backend.token (the device
  // chose a number that is not a token).
  Result<int32_t> token = 0;
  LogprobStep logprobs = {};
};

class BatchSession {
 public:
  // `graphs`: of the program of the session. With a lane: for decode steps in it, which may be in
  // flight together with those of other lanes.
  BatchSession(Session& session, const ProgramGraphs& graphs, int64_t vocabulary,
               StepLane lane = {});

  // Appends each row's token to its slot and draws the one that follows. Rows of one slot follow
  // one another. Either all rows need AdapterGraphs::several or none does. The results are in the
  // order of the rows, valid until the next call.
  Result<std::span<const RowResult>> Decode(std::span<const RowRequest> rows);
  // Decode() in two parts, with the same rows: Finish() waits for what Start() began. Outside lanes
  // no other step may run between the two.
  Status Start(std::span<const RowRequest> rows);
  Result<std::span<const RowResult>> Finish(std::span<const RowRequest> rows);

  // Appends the tokens of a chunk to a slot, and draws the token that follows once for each of
  // `draws`, whose adapters are these and whose slots write the answers. The results are as those
  // of Decode().
  Result<std::span<const RowResult>> Read(int32_t slot, std::span<const int32_t> chunk,
                                          std::span<const RowRequest> draws,
                                          const AdaptersInForce* adapters = nullptr);

  // Appends a chunk of a prompt with pictures and sounds, whose rows are soft where its ids are
  // below 0 (soft_row_ids.h). `media` has the soft tokens of at least these rows
  // (SoftRowInputs::Set). For a program with media_rows.
  Status ReadMedia(int32_t slot, std::span<const int32_t> chunk, std::span<const SoftRows> media,
                   const AdaptersInForce* adapters = nullptr);

  // Compiles the plan of a decode step of this row alone, unless it is there.
  Status PrepareDecode(const RowRequest& row);

  // Runs tokens through the graph of an output, which computes a value for every row, and copies
  // them to `rows`.
  Status Evaluate(std::optional<ProgramGraphs::RowOutput> ProgramGraphs::*of, int32_t slot,
                  std::span<const int32_t> chunk, const AdaptersInForce* adapters,
                  std::vector<float>& rows);

 private:
  // The graphs for rows with these adapters.
  [[nodiscard]] const ProgramGraphs& GraphsFor(const AdaptersInForce* adapters) const;
  // The graphs for a step whose rows have adapters_, whose inputs it sets.
  Result<const ProgramGraphs*> SetAdapters();
  // The same for a chunk of one slot.
  Result<const ProgramGraphs*> SetAdapters(const AdaptersInForce* adapters, size_t rows);
  // The chain that can draw all rows.
  [[nodiscard]] RowChainOptions ChainFor(std::span<const RowRequest> rows);
  // Starts the rows of step_.
  Status StartDraw(std::span<const RowRequest> rows);
  // Says where the wanted rows of step_ are kept for drafts of the slots of `rows`.
  Status SetPlaces(std::span<const RowRequest> rows);
  Status ReadOutput(std::string_view name, std::span<std::byte> data);
  Status ReadLogprobs(std::span<const RowRequest> rows);
  // `token` was drawn after `position`.
  [[nodiscard]] Result<int32_t> CheckToken(const RowRequest& row, int32_t position, int32_t token,
                                           float sum) const;

  Session& session_;
  int64_t vocabulary_;
  ProgramGraphs graphs_;
  StepLane lane_;
  RowChainOptions chain_;  // of the step that was started last
  RowInputs inputs_;
  std::optional<RowAdapterInputs> adapter_inputs_;  // none: rows choose no adapters
  std::vector<const AdaptersInForce*> adapters_;    // of the rows of the last step
  std::vector<int32_t> places_;                     // draft_names::kPlace of the last step
  std::optional<SoftRowInputs> soft_inputs_;        // none: the program has no graph for media
  StepRows step_;
  std::vector<int32_t> history_;  // media_names::kHistory of the last step with media
  // Memory that is reused from step to step.
  std::vector<RowSampling> samplings_;  // of the rows of the last ChainFor()
  std::vector<RowResult> results_;
  std::vector<int32_t> tokens_;
  std::vector<float> sums_;
  std::vector<float> logprobs_;
  std::vector<float> top_logprobs_;
  std::vector<int32_t> top_tokens_;
};

}  // namespace rullama
