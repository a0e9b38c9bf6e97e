#include "engine/model_program.h"

#include <algorithm>
#include <map>
#include <span>

#include "core/ir/draft_names.h"
#include "core/ir/encoder_names.h"
#include "core/ir/media_names.h"
#include "core/runtime/output_names.h"
#include "engine/adapters_in_force.h"
#include "samplers/row_chain.h"

namespace rullama {
namespace {

// The NaN check adds up logits. Suppressed tokens are -inf by design, so the sum is taken before
// the bias that bans them.
ValueId FiniteLogits(const GraphBuilder& builder, ValueId logits) {
  const Graph& graph = builder.graph();
  const OpIndex producer = graph.value(logits).producer;
  if (producer == kNoOp || graph.ops[producer].kind != OpKind::kBiasAdd) return logits;
  return graph.ops[producer].inputs[operands::BiasAdd::logits];
}

BuildOptions CausalPass(const ModelProgramOptions& options) {
  return {.slots = options.slots,
          .capacity = options.capacity,
          .kv_dtype = options.kv_dtype,
          .spare_rows = options.spare_rows,
          .max_t = options.limits.max_t,
          .max_r = options.limits.max_r};
}

void AddLogitsSum(ModelGraph& parts) {
  GraphBuilder& builder = parts.builder;
  const ValueId sum =
      builder.Add(ops::Reduce{.x = FiniteLogits(builder, parts.logits), .fn = RL_REDUCE_SUM},
                  output_names::kLogitsSum);
  builder.Output(output_names::kLogitsSum, sum);
}

SamplerInputs InputsOf(const ModelGraph& parts, const ModelProgramOptions& options) {
  return {.tokens = parts.tokens,
          .wanted = parts.rows,
          .rows = parts.attention_rows,
          .slots = options.slots,
          .capacity = options.capacity};
}

// The chain of the first kind that has the settings, whose inputs stay the same in every step.
Status AppendToken(const ModelProgramOptions& options, int64_t vocabulary, ModelGraph& parts,
                   ModelProgram& program) {
  RL_RETURN_IF_ERROR(options.sampler->Validate(vocabulary));
  const std::vector<TokenBias> biases = BiasesOf(*options.sampler);
  RowSampling row = RowSamplingOf(*options.sampler);
  row.bias = biases;
  const RowChainKind kind = KindFor(row, vocabulary);
  AddLogitsSum(parts);
  AppendRowChain(parts.builder, parts.logits, InputsOf(parts, options), {.kind = kind});
  RowInputs inputs(vocabulary);
  RL_RETURN_IF_ERROR(inputs.Set(kind, {&row, 1}));
  for (const auto& [name, bytes] : inputs.inputs()) {
    program.inputs.emplace_back(name, std::vector(bytes.begin(), bytes.end()));
  }
  return OkStatus();
}

// Appends a finished graph.
GraphHandle Append(SessionGraph graph, ModelProgram& program) {
  program.graphs.push_back(std::move(graph));
  return {program.graphs.size() - 1};
}

// Finishes and appends a graph; its constants join those of the program, where one of each name is
// enough.
Result<GraphHandle> AddGraph(ModelGraph parts, std::vector<int64_t> buckets, bool extends_past,
                             ModelProgram& program) {
  for (SyntheticConstant& constant : parts.constants) {
    const bool known = std::ranges::find(program.constants, constant.name,
                                         &SyntheticConstant::name) != program.constants.end();
    if (!known) program.constants.push_back(std::move(constant));
  }
  RL_ASSIGN_OR_RETURN(Graph graph, std::move(parts.builder).Finish());
  program.layer_outputs.clear();
  for (const ValueId hidden : parts.hidden) {
    program.layer_outputs.push_back(graph.value(hidden).name);
  }
  return Append({std::move(graph), std::move(buckets), extends_past}, program);
}

// A step keeps the logits of all its rows, which stay small compared with a model: 64 MiB.
int64_t RowsWithLogits(int64_t vocabulary, int64_t most) {
  constexpr int64_t kMaxLogits = int64_t{16} << 20;
  return std::clamp<int64_t>(kMaxLogits / vocabulary, 1, most);
}

// Adds a graph for steps of at most `rows` rows, which has this value of each as its output.
Result<ProgramGraphs::RowOutput> AddRowOutput(ModelGraph parts, std::string_view name,
                                              ValueId value, int64_t rows, ModelProgram& program) {
  parts.builder.Output(name, value, RowDemand::kAll);
  RL_ASSIGN_OR_RETURN(const GraphHandle handle,
                      AddGraph(std::move(parts), {rows}, /*extends_past=*/true, program));
  Graph& graph = program.graphs[handle.index].graph;
  graph.max_t = rows;
  graph.max_r = std::min(graph.max_r, rows);
  return ProgramGraphs::RowOutput{handle, name};
}

Status AddMediaGraph(const Model& model, const ModelProgramOptions& options,
                     ModelProgram& program) {
  BuildOptions build = CausalPass(options);
  build.pass = ModelPass::kMedia;
  build.max_t = options.media_rows;
  RL_ASSIGN_OR_RETURN(ModelGraph media, model.BuildGraph(build));
  if (options.outputs == GraphOutputs::kAllLogits) {
    AddLogitsOutput(media.builder, media.logits, RowDemand::kAll);
  } else {
    SamplerInputs inputs = InputsOf(media, options);
    inputs.tokens = media.builder.Input(media_names::kHistory, {DType::kI32, {Dim::T()}});
    AppendRowHistory(media.builder, inputs);
  }
  RL_ASSIGN_OR_RETURN(program.handles.media, AddGraph(std::move(media), {options.media_rows},
                                                      /*extends_past=*/true, program));
  return OkStatus();
}

// An encoder: a graph over the rows of texts, in f32, and one over their means.
Result<ModelProgram> BuildEncoderProgram(const Model& model, const ModelProgramOptions& options) {
  BuildOptions build = CausalPass(options);
  build.pass = ModelPass::kEncode;
  build.caches = false;
  build.kv_dtype = DType::kF32;
  build.slots = kMaxTextsOfStep + 1;  // one for rows between texts
  RL_ASSIGN_OR_RETURN(ModelGraph text, model.BuildGraph(build));
  text.builder.Output(encoder_names::kHidden, text.last_norm, RowDemand::kAll);
  ModelProgram program;
  // One plan for texts of any length, so that a text has the same bytes with others as alone.
  RL_ASSIGN_OR_RETURN(program.handles.read,
                      AddGraph(std::move(text), {build.max_t}, /*extends_past=*/false, program));
  program.handles.hidden = {program.handles.read, encoder_names::kHidden};
  if (options.media_rows > 0) {
    build.pass = ModelPass::kEncodeMedia;
    RL_ASSIGN_OR_RETURN(ModelGraph media, model.BuildGraph(build));
    media.builder.Output(encoder_names::kHidden, media.last_norm, RowDemand::kAll);
    RL_ASSIGN_OR_RETURN(program.handles.media, AddGraph(std::move(media), {options.media_rows},
                                                        /*extends_past=*/false, program));
  }
  if (!model.facts().encoder.has_head) return program;
  const std::vector<std::string> layer_outputs = program.layer_outputs;
  RL_ASSIGN_OR_RETURN(ModelGraph head, model.BuildEmbeddingHead());
  // One plan for all numbers of means, so that a mean has the same bytes with others as alone.
  RL_ASSIGN_OR_RETURN(program.handles.head, AddGraph(std::move(head), {options.shared_means},
                                                     /*extends_past=*/false, program));
  Graph& graph = program.graphs[program.handles.head->index].graph;
  graph.max_t = options.shared_means;
  graph.max_r = std::min(graph.max_r, graph.max_t);
  program.layer_outputs = layer_outputs;
  return program;
}

int64_t PlacesOf(const ModelProgramOptions& options) {
  return options.slots * DraftGraphs::kPlacesOfSlot;
}

// Keeps what the last norm gives for wanted rows, of which drafts begin.
void KeepHidden(const ModelProgramOptions& options, int64_t width, ModelGraph& parts) {
  GraphBuilder& b = parts.builder;
  const ValueId state = b.State(draft_names::kHidden, {DType::kF32, {PlacesOf(options), 1, width}});
  const ValueId place = b.Input(draft_names::kPlace, {DType::kI32, {Dim::R()}});
  const ValueId rows =
      b.Add(ops::GatherRows{.table = parts.last_norm, .ids = parts.rows}, "draft.hidden.rows");
  // A place has one row, so that the position does not matter.
  b.Add(ops::StateAppend{.state = state, .rows = rows, .pos = place, .slot = place},
        "draft.hidden.next");
}

// Lengths of drafts with a graph of their own, up to the longest.
std::vector<int64_t> DraftLengths(int64_t most) {
  std::vector<int64_t> lengths;
  for (const int64_t length : {1, 2, 3, 4, 6, 8, 12, 16}) {
    if (length < most) lengths.push_back(length);
  }
  lengths.push_back(most);
  return lengths;
}

Status AddDraftGraphs(const ModelProgramOptions& options, ModelProgram& program) {
  BuildOptions build = CausalPass(options);
  build.max_t = options.slots;
  build.max_r = 1;
  const std::vector<std::string> layers = program.layer_outputs;
  DraftGraphs& drafts = program.handles.drafts.emplace();
  for (const int64_t tokens : DraftLengths(options.max_draft)) {
    DraftGraphs::Length& length = drafts.lengths.emplace_back();
    length.tokens = tokens;
    for (const bool judging : {false, true}) {
      const DraftShape shape{
          .tokens = tokens, .places = PlacesOf(options), .probabilities = judging};
      RL_ASSIGN_OR_RETURN(ModelGraph parts, options.assistant->BuildGraph(build, shape));
      GraphHandle& handle = judging ? length.judging : length.graph;
      RL_ASSIGN_OR_RETURN(handle, AddGraph(std::move(parts), DecodeBuckets(options.slots),
                                           /*extends_past=*/false, program));
    }
  }
  program.layer_outputs = layers;
  return OkStatus();
}

// The graphs differ after the logits.
Result<ModelProgram> BuildBatchProgram(const Model& model, const ModelProgramOptions& options) {
  std::vector<int64_t> buckets = DecodeBuckets(options.slots);
  // The chunks of prompts, most of which end in one that is short.
  for (const int64_t rows : DefaultBuckets(options.limits.max_t)) {
    if (rows > buckets.back()) buckets.push_back(rows);
  }
  // Steps that check drafts have buckets of their own, so that prompts are read as without drafts.
  const bool drafts = options.limits.max_r > options.slots;
  const auto of_wanted = DecodeBuckets(options.limits.max_r);
  BuildOptions build = CausalPass(options);
  build.max_t = std::max(buckets.back(), of_wanted.back());
  RL_ASSIGN_OR_RETURN(const ModelGraph causal, model.BuildGraph(build));
  ModelGraph summed = causal;
  AddLogitsSum(summed);
  ModelGraph drawing = summed;
  if (options.assistant != nullptr) KeepHidden(options, model.facts().width, drawing);
  ModelProgram program;
  for (size_t kind = 0; kind < kRowChainKinds; ++kind) {
    for (const bool logprobs : {false, true}) {
      ModelGraph parts = drawing;
      AppendRowChain(parts.builder, parts.logits, InputsOf(parts, options),
                     {.kind = static_cast<RowChainKind>(kind), .logprobs = logprobs});
      RL_ASSIGN_OR_RETURN(program.handles.draw[kind][logprobs ? 1 : 0],
                          AddGraph(std::move(parts), buckets, /*extends_past=*/true, program));
      if (drafts) program.graphs.back().buckets_of_wanted = of_wanted;
    }
  }
  program.handles.read = program.handles.Draw({});
  if (options.assistant != nullptr) {
    // A step that wants no rows keeps none, and computes none to keep.
    AppendRowChain(summed.builder, summed.logits, InputsOf(summed, options), {});
    RL_ASSIGN_OR_RETURN(program.handles.read,
                        AddGraph(std::move(summed), buckets, /*extends_past=*/true, program));
    RL_RETURN_IF_ERROR(AddDraftGraphs(options, program));
  }
  const int64_t rows = options.limits.max_t;
  RL_ASSIGN_OR_RETURN(program.handles.hidden,
                      AddRowOutput(causal, "hidden", causal.last_norm, rows, program));
  // Answers may follow rows whose logits were asked for.
  ModelGraph kept = causal;
  AppendRowHistory(kept.builder, InputsOf(kept, options));
  RL_ASSIGN_OR_RETURN(program.handles.logits,
                      AddRowOutput(std::move(kept), output_names::kLogits, causal.logits,
                                   RowsWithLogits(model.facts().vocabulary, rows), program));
  return program;
}

Result<ModelProgram> BuildCanvasProgram(const Model& model, const ModelProgramOptions& options) {
  const int64_t length = model.facts().canvas.length;
  if (length > options.capacity) {
    return MakeError(ErrorKind::kRuntime, "context.overflow",
                     "a canvas of this model has {} tokens, but the context holds {}; raise "
                     "--ctx-size",
                     length, options.capacity);
  }
  ModelProgram program;
  BuildOptions build = CausalPass(options);
  RL_ASSIGN_OR_RETURN(ModelGraph encode, model.BuildGraph(build));
  RL_ASSIGN_OR_RETURN(program.handles.read,
                      AddGraph(std::move(encode), {}, /*extends_past=*/true, program));

  build.pass = ModelPass::kCanvas;
  build.max_t = length;
  RL_ASSIGN_OR_RETURN(ModelGraph denoise, model.BuildGraph(build));
  if (options.outputs != GraphOutputs::kAllLogits) {
    const ValueId inverse_temperature =
        AppendEntropyBound(denoise.builder, denoise.logits, options.diffusion->entropy_bound);
    AppendSelfConditioning(denoise, denoise.logits, inverse_temperature);
  } else {
    AddLogitsOutput(denoise.builder, denoise.logits, RowDemand::kAll);
  }
  RL_ASSIGN_OR_RETURN(program.handles.denoise, AddGraph(std::move(denoise), {length},
                                                        /*extends_past=*/false, program));
  if (options.outputs != GraphOutputs::kAllLogits) return program;

  RL_ASSIGN_OR_RETURN(Graph condition, model.BuildConditioning());
  program.handles.condition =
      Append({std::move(condition), {length}, /*extends_past=*/false}, program);
  return program;
}

}  // namespace

EntropyBoundSettings RecommendedBy(const CanvasFacts& canvas) {
  return {.max_steps = canvas.max_steps,
          .t_min = canvas.t_min,
          .t_max = canvas.t_max,
          .entropy_bound = canvas.entropy_bound,
          .stability_threshold = canvas.stability_threshold,
          .confidence_threshold = canvas.confidence_threshold};
}

const DraftGraphs::Length& DraftGraphs::Of(int64_t tokens) const {
  const auto found = std::ranges::lower_bound(lengths, tokens, {}, &Length::tokens);
  return found == lengths.end() ? lengths.back() : *found;
}

bool DraftGraphs::Has(GraphHandle graph) const {
  return std::ranges::any_of(lengths, [graph](const Length& length) {
    return length.graph == graph || length.judging == graph;
  });
}

bool ProgramGraphs::Has(GraphHandle graph) const {
  const bool draws = std::ranges::any_of(draw, [graph](const auto& of_kind) {
    return std::ranges::find(of_kind, graph) != of_kind.end();
  });
  return draws || read == graph || media == graph || (hidden && hidden->graph == graph) ||
         (logits && logits->graph == graph);
}

std::string ProgramGraphs::UseOf(GraphHandle graph) const {
  constexpr std::array<std::string_view, kRowChainKinds> kAnswers = {
      "greedy answers", "drawn answers", "penalties, biases and JSON schemas",
      "all settings of the sampler"};
  if (adapters && adapters->several && adapters->several->Has(graph)) {
    return adapters->several->UseOf(graph) + " with several adapters";
  }
  if (media == graph) return "pictures and sound";
  if (denoise == graph || condition == graph) return "canvases";
  if (head) return "embeddings";
  if (!hidden || !logits) return "text";  // not of kBatch
  if (read == graph) return "prompts";
  if (drafts && drafts->Has(graph)) return "drafts";
  if (hidden->graph == graph) return "embeddings";
  if (logits->graph == graph) return "logits of prompts";
  size_t kind = 0;
  while (kind + 1 < draw.size() && draw[kind][0] != graph && draw[kind][1] != graph) ++kind;
  const bool has_logprobs = draw[kind][1] == graph;
  return std::string(kAnswers[kind]) + (has_logprobs ? " with log-probabilities" : "");
}

StepLimits BatchLimits(int64_t decode_rows, int64_t chunk) {
  return {.max_t = std::max(decode_rows, chunk), .max_r = decode_rows};
}

Status SetRowInputs(const RowInputs& inputs, Session& session, StepLane lane) {
  for (const auto& [name, bytes] : inputs.inputs()) {
    RL_RETURN_IF_ERROR(session.SetInput(name, bytes, lane));
  }
  return OkStatus();
}

namespace {

Result<ModelProgram> BuildPlainProgram(const Model& model, const ModelProgramOptions& options) {
  if (model.facts().encodes() && options.outputs == GraphOutputs::kBatch) {
    return BuildEncoderProgram(model, options);
  }
  if (model.facts().denoises()) {
    RL_ASSIGN_OR_RETURN(ModelProgram program, BuildCanvasProgram(model, options));
    program.layer_outputs.clear();
    return program;
  }
  if (options.outputs == GraphOutputs::kBatch) return BuildBatchProgram(model, options);
  ModelProgram program;
  RL_ASSIGN_OR_RETURN(ModelGraph parts, model.BuildGraph(CausalPass(options)));
  if (options.outputs == GraphOutputs::kAllLogits) {
    AddLogitsOutput(parts.builder, parts.logits, RowDemand::kAll);
  } else {
    RL_RETURN_IF_ERROR(AppendToken(options, model.facts().vocabulary, parts, program));
  }
  RL_ASSIGN_OR_RETURN(program.handles.read,
                      AddGraph(std::move(parts), {}, /*extends_past=*/true, program));
  return program;
}

// Appends a copy of the graphs of the model, in which rows have several adapters. Those of an
// assistant are not adapted.
Result<std::shared_ptr<const ProgramGraphs>> AddWithPlaces(const std::vector<SessionGraph>& plain,
                                                           std::span<const LowRankPair> pairs,
                                                           std::span<const WeightScale> scales,
                                                           ModelProgram& program) {
  auto copied = std::make_shared<ProgramGraphs>(program.handles);
  Status status = OkStatus();
  std::map<size_t, GraphHandle> copies;  // several uses may have one graph
  const auto copy = [&](GraphHandle& handle) {
    const auto [at, is_new] = copies.try_emplace(handle.index);
    if (is_new && status) {
      SessionGraph graph = plain[handle.index];
      auto adapted = WithScalesAndAdapters(graph.graph, scales, pairs);
      if (!adapted) {
        status = tl::unexpected(adapted.error());
        return;
      }
      graph.graph = *std::move(adapted);
      at->second = Append(std::move(graph), program);
    }
    handle = at->second;
  };
  copy(copied->read);
  if (copied->media) copy(*copied->media);
  if (copied->hidden) copy(copied->hidden->graph);
  if (copied->logits) copy(copied->logits->graph);
  for (auto& of_kind : copied->draw) {
    for (GraphHandle& handle : of_kind) copy(handle);
  }
  RL_RETURN_IF_ERROR(status);
  return copied;
}

// A program whose rows choose among adapters.
Result<ModelProgram> WithRowAdapters(const RowAdapters& adapters,
                                     std::span<const WeightScale> scales, ModelProgram program) {
  const std::vector<SessionGraph> plain = program.graphs;
  for (SessionGraph& graph : program.graphs) {
    RL_ASSIGN_OR_RETURN(graph.graph, WithScalesAndAdapters(graph.graph, scales, adapters.pairs));
  }
  AdapterGraphs graphs;
  for (size_t group = 0; group < adapters.groups.size(); ++group) {
    graphs.sizes.push_back(std::ssize(adapters.groups[group]));
    for (size_t number = 0; number < adapters.groups[group].size(); ++number) {
      const auto adapter = static_cast<size_t>(adapters.groups[group][number]);
      graphs.seats.resize(std::max(graphs.seats.size(), adapter + 1));
      graphs.seats[adapter] = {static_cast<int32_t>(group), static_cast<int32_t>(number)};
    }
  }
  graphs.places = std::min<int64_t>(adapters.LargestGroup(), kMaxAdaptersInForce);
  if (graphs.places > 1) {
    std::vector<LowRankPair> pairs = adapters.pairs;
    for (LowRankPair& pair : pairs) pair.places = std::min(pair.choices, graphs.places);
    RL_ASSIGN_OR_RETURN(graphs.several, AddWithPlaces(plain, pairs, scales, program));
  }
  program.handles.adapters = std::move(graphs);
  return program;
}

}  // namespace

int64_t AdapterGraphs::PlacesFor(const AdaptersInForce* adapters) const {
  if (adapters == nullptr) return 0;
  std::vector<int64_t> counts(sizes.size());
  for (const AdapterScale& one : adapters->scales) {
    ++counts[static_cast<size_t>(seats[static_cast<size_t>(one.id)].group)];
  }
  return std::ranges::max(counts);
}

Result<ModelProgram> BuildModelProgram(const Model& model, const ModelProgramOptions& options) {
  RL_ASSIGN_OR_RETURN(ModelProgram program, BuildPlainProgram(model, options));
  if (options.media_rows > 0 && !model.facts().encodes()) {
    RL_RETURN_IF_ERROR(AddMediaGraph(model, options, program));
  }
  const ModelAdapters none;
  const ModelAdapters& adapters = options.adapters == nullptr ? none : *options.adapters;
  const std::vector<WeightScale>& scales = model.facts().weight_scales;
  const bool by_row = options.row_adapters != nullptr && !options.row_adapters->empty();
  if (by_row) return WithRowAdapters(*options.row_adapters, scales, std::move(program));
  if (scales.empty() && adapters.pairs.empty()) return program;
  for (SessionGraph& graph : program.graphs) {
    RL_ASSIGN_OR_RETURN(graph.graph, WithScalesAndAdapters(graph.graph, scales, adapters.pairs));
  }
  return program;
}

}  // namespace rullama
