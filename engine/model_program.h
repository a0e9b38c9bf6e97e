// The program of a session: the graphs of a model, with the outputs that a command needs. Pure
// functions.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/runtime/session.h"
#include "models/common/assistant.h"
#include "models/common/model.h"
#include "samplers/row_chain.h"
#include "samplers/settings.h"

namespace rullama {

enum class GraphOutputs {
  kText,       // what generating needs: the sampled token and the sum that tells NaN logits; of a
               // model that denoises, what denoising with its sampler needs
  kBatch,      // what generating for several requests at once needs
  kAllLogits,  // the logits of every row; of a model that denoises, those of a canvas
};

struct ModelProgramOptions {
  GraphOutputs outputs = GraphOutputs::kText;
  // Used with kText only; `diffusion` is for a model that denoises, `sampler` for all others.
  const SamplerSettings* sampler = nullptr;
  const EntropyBoundSettings* diffusion = nullptr;
  const ModelAdapters* adapters = nullptr;    // null: none
  const RowAdapters* row_adapters = nullptr;  // of kBatch; null: none
  int64_t slots = 1;                          // sequences of their own
  int64_t capacity = 0;                       // tokens per slot
  CacheTypes kv_dtype = {};
  StepLimits limits = {.max_t = 1};  // of a step of the causal pass
  int64_t spare_rows = 0;            // as BuildOptions::spare_rows
  // The most rows of a step with soft tokens; 0: the program has no graph for such steps. With
  // kBatch and kAllLogits only.
  int64_t media_rows = 0;
  int64_t shared_means = 1;  // of an encoder: the most that the layers after them take in a step
  // The model's assistant, for kBatch; null: none. Its graphs guess up to `max_draft` tokens.
  const Assistant* assistant = nullptr;
  int64_t max_draft = 0;
};

// The limits of a step that draws up to `decode_rows` tokens, at least one for each slot, or reads
// up to `chunk` tokens of one.
[[nodiscard]] StepLimits BatchLimits(int64_t decode_rows, int64_t chunk);

// The graphs of a model's assistant (draft_names).
struct DraftGraphs {
  struct Length {
    int64_t tokens = 0;  // that the graphs guess
    GraphHandle graph = {};
    GraphHandle judging = {};  // also gives draft_names::kProbabilities
  };
  std::vector<Length> lengths = {};  // ascending

  // The graphs of the fewest tokens that are at least this many; the longest if there is none.
  [[nodiscard]] const Length& Of(int64_t tokens) const;
  [[nodiscard]] bool Has(GraphHandle graph) const;

  // A slot keeps the results of the last norm for the rows of a step: that of its last token and
  // those of the longest draft.
  static constexpr int32_t kPlacesOfSlot = 17;
  // The place of a row.
  [[nodiscard]] static constexpr int32_t PlaceOf(int32_t slot, int32_t position) {
    return slot * kPlacesOfSlot + position % kPlacesOfSlot;
  }
};

struct AdaptersInForce;
struct ProgramGraphs;

// The most texts that an encoder reads in a step.
inline constexpr int64_t kMaxTextsOfStep = 255;

// Graphs whose rows choose adapters (core/passes/adapt.h).
struct AdapterGraphs {
  // Where an adapter is: its group, and its number there.
  struct Seat {
    int32_t group = 0;
    int32_t number = 0;
  };
  std::vector<Seat> seats = {};     // by the number of the adapter
  std::vector<int64_t> sizes = {};  // of the groups
  // For rows that have several adapters of a group, `places` at most. Null: there is one each.
  std::shared_ptr<const ProgramGraphs> several = {};
  int64_t places = 1;

  // The most adapters of a group that are in force; null: none is.
  [[nodiscard]] int64_t PlacesFor(const AdaptersInForce* adapters) const;
  // Whether they need `several`.
  [[nodiscard]] bool NeedSeveral(const AdaptersInForce* adapters) const {
    return PlacesFor(adapters) > 1;
  }
};

// The graphs of a program by what they do. An empty member: the program has no such graph.
struct ProgramGraphs {
  // A graph that computes a value for every row of a step.
  struct RowOutput {
    GraphHandle graph;
    std::string_view output;
  };

  // Appends rows to the caches. Of kText and kAllLogits it has their outputs, too; of kBatch it is
  // any that draws, as a step that wants no rows may take each of them.
  GraphHandle read = {};
  // As `read` for steps with soft tokens (ModelPass::kMedia, kEncodeMedia). That of a batch has no
  // outputs; that of an encoder has the output of `hidden`.
  std::optional<GraphHandle> media = {};
  // Of kBatch.
  std::optional<RowOutput> hidden = {};  // the output of the last norm, f32[T, width]
  std::optional<RowOutput> logits = {};  // f32[T, vocabulary]
  // Of an encoder, which has `hidden` too and nothing else: the layers after the mean, if it has
  // them (Model::BuildEmbeddingHead).
  std::optional<GraphHandle> head = {};
  // Of kBatch with an assistant. Steps that draw set draft_names::kPlace.
  std::optional<DraftGraphs> drafts = {};
  // None: all rows have the same adapters, or none.
  std::optional<AdapterGraphs> adapters = {};
  // Of a model that denoises.
  std::optional<GraphHandle> denoise = {};
  std::optional<GraphHandle> condition = {};  // of kAllLogits (Model::BuildConditioning)

  // The graph of kBatch that ends in this chain. A step takes the first kind that all its rows
  // allow (KindFor); their inputs are those of RowInputs.
  [[nodiscard]] GraphHandle Draw(const RowChainOptions& chain) const {
    return draw[static_cast<size_t>(chain.kind)][chain.logprobs ? 1 : 0];
  }
  std::array<std::array<GraphHandle, 2>, kRowChainKinds> draw = {};  // by kind, and logprobs

  // Whether it is one of those that rows with adapters have.
  [[nodiscard]] bool Has(GraphHandle graph) const;
  // What requests lack without this graph, for messages: "greedy answers with log-probabilities".
  [[nodiscard]] std::string UseOf(GraphHandle graph) const;
};

struct ModelProgram {
  std::vector<SessionGraph> graphs;
  ProgramGraphs handles;
  // Without those of the adapters, which are in ModelProgramOptions and may take gigabytes.
  std::vector<SyntheticConstant> constants;
  std::vector<std::pair<std::string, std::vector<std::byte>>> inputs;  // to be set once
  // ModelGraph::hidden by name, the same in all graphs; empty for a model that denoises, whose
  // layers cannot be spread over devices.
  std::vector<std::string> layer_outputs;
};

// The settings for denoising that the model file recommends.
EntropyBoundSettings RecommendedBy(const CanvasFacts& canvas);

// Sets the inputs of the chain to the rows that RowInputs::Set() took, for the steps of a lane or
// of all.
Status SetRowInputs(const RowInputs& inputs, Session& session, StepLane lane = {});

// Errors: of Model::BuildGraph and of the samplers; context.overflow if the canvas is longer than
// the context.
Result<ModelProgram> BuildModelProgram(const Model& model, const ModelProgramOptions& options);

}  // namespace rullama
