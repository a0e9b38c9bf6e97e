#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/drafts/draft_length.h"
#include "engine/drafts/draft_model.h"
#include "engine/embeddings.h"
#include "engine/engine_impl.h"
#include "engine/loading/auto_slots.h"
#include "engine/loading/cache_limits.h"
#include "engine/loading/engine_config.h"
#include "engine/scheduling/scheduler.h"
#include "engine/scheduling/text_encoder.h"
#include "engine/scheduling/warm_up.h"

namespace rullama {
namespace {

ModelInfo InfoOf(const ModelSession& session) {
  const LoadedModel& model = session.model();
  ModelInfo info = EngineAccess::FileInfo(model.file);
  info.backend = session.devices().backend;
  const std::vector<DeviceDescription> devices = session.devices().DescribeLayerDevices();
  for (const DeviceDescription& device : devices) {
    info.device += (info.device.empty() ? "" : ", ") + device.name;
  }
  info.layers = model.facts().layers;
  info.width = model.facts().width;
  info.vocabulary = model.facts().vocabulary;
  info.context_length = model.facts().context_length;
  info.capacity = model.capacity();
  info.slots = session.slots();
  if (!model.facts().encodes()) {
    const CacheTypes types = KvDtypeFor(session.config(), info.backend);
    info.cache_type = ToString(types);
    info.slot_bytes = static_cast<int64_t>(model.model->CacheBytes(
        {.capacity = info.capacity, .kv_dtype = types, .spare_rows = session.spare_rows()}));
  }
  info.canvas_length = model.facts().canvas.length;
  const EncoderFacts& encoder = model.facts().encoder;
  info.encodes = model.facts().encodes();
  info.embedding_width = info.encodes ? encoder.embedding : info.width;
  if (model.facts().denoises()) info.embedding_width = 0;
  info.dense = encoder.has_head;
  for (const EmbeddingPrompt& prompt : model.model->EmbeddingPrompts()) {
    info.embedding_prompts.push_back({std::string(prompt.name), std::string(prompt.text)});
  }
  info.chunk = session.chunk();
  info.takes_pictures = model.Takes(MediaKind::kPicture);
  info.takes_sound = model.Takes(MediaKind::kSound);
  info.deterministic = std::ranges::all_of(devices, &DeviceDescription::deterministic);
  info.sampling = SamplingDefaultsOf(session.sampler());
  info.load_seconds = session.load_seconds();
  return info;
}

// The slots that the caller or the configuration asks for, else those that there are at least.
int64_t SlotsFor(const EngineSetup& setup, const Config& config) {
  const std::optional<int64_t> asked = setup.slots ? setup.slots : config.context.slots;
  return asked.value_or(setup.auto_slots ? kFewestAutoSlots : 1);
}

// Whether there may be more of them where the device has room. A draft model of its own is opened
// before the device is known, and needs as many; canvases take turns, and texts need no slot.
bool DeviceChoosesSlots(const EngineSetup& setup, const LoadedModel& model) {
  if (!setup.auto_slots || setup.slots || model.config().context.slots) return false;
  const ModelFacts& facts = model.facts();
  return !facts.denoises() && !facts.encodes() && !model.config().drafts.model;
}

std::vector<int32_t> EndTokens(const Tokenizer& tokenizer) {
  const std::span<const TokenId> ends = tokenizer.end_of_generation_ids();
  return {ends.begin(), ends.end()};
}

// Nothing for a model that predicts tokens.
std::optional<CanvasOptions> CanvasesOf(const ModelSession& session) {
  if (!session.model().facts().denoises()) return std::nullopt;
  return CanvasOptions{.generator = CanvasOptionsOf(session),
                       .random = session.config().sampler.diffusion.random};
}

// The function that writes warnings to the log of the program; empty if there is no log.
std::function<void(std::string_view)> WarnerOf(const HostHooks& hooks) {
  if (!hooks.logger) return {};
  return [logger = hooks.logger](std::string_view text) { logger->warn("{}", text); };
}

// The chain that draws the tokens of requests without settings of their own.
RowChainOptions UsualChain(const SamplerSettings& settings, int64_t vocabulary) {
  const std::vector<TokenBias> biases = BiasesOf(settings);
  RowSampling row = RowSamplingOf(settings);
  row.bias = biases;
  return {.kind = KindFor(row, vocabulary)};
}

void WarnOfIdleDrafts(const Config& config, Notices& notices) {
  if (!WantsDrafts(config)) return;
  notices.Warn("drafts have no effect: this model denoises");
}

}  // namespace

Status Engine::Impl::Start(LoadedModel model, const EngineSetup& setup, Notices& notices) {
  if (const std::string warning = model.model->ChatWarning();
      !warning.empty() && !model.config().generation.raw) {
    notices.Warn(warning);
  }
  media_budget = setup.hooks.media_budget;
  if (!media_budget) {
    // A program that submits many requests before it reads an answer would wait for itself.
    constexpr MediaBudgetLimits kNoWaiting{.decoded_bytes = std::numeric_limits<uint64_t>::max()};
    media_budget = std::make_shared<MediaBudget>(kNoWaiting);
  }
  RL_RETURN_IF_ERROR(OpenSession(std::move(model), setup, notices));
  constraints = std::make_unique<AnswerConstraints>(session->model());
  adapters = std::make_unique<AdapterTable>(
      session->model().adapter_facts, session->graphs().adapters.has_value(), setup.apply_adapters);
  sampler = session->sampler();
  has_seed = session->config().sampler.seed.value_or(-1) >= 0;
  if (!session->graphs().drafts) assistant.reset();
  if (assistant) {
    assistant_drafter = std::make_unique<AssistantDrafter>(
        session->session(), *session->graphs().drafts, EndTokens(session->tokenizer()));
  }
  info = InfoOf(*session);
  transfers = std::make_unique<TurnTaker[]>(static_cast<size_t>(info.slots));
  RL_RETURN_IF_ERROR(LimitCaches());
  RL_RETURN_IF_ERROR(WarmUpFor(setup, notices));
  keys = std::make_unique<SnapshotKeys>(*session, *adapters,
                                        info.encodes ? nullptr : setup.hooks.snapshots);
  if (info.encodes) return StartEncoder(setup);
  StartScheduler(setup);
  return OkStatus();
}

Status Engine::Impl::OpenSession(LoadedModel model, const EngineSetup& setup, Notices& notices) {
  const bool denoises = model.facts().denoises();
  ModelSessionOptions options{.outputs = denoises ? GraphOutputs::kText : GraphOutputs::kBatch,
                              .slots = SlotsFor(setup, model.config()),
                              .auto_slots = DeviceChoosesSlots(setup, model),
                              .plugin_paths = setup.plugin_paths,
                              .observer = setup.hooks.observer};
  if (denoises) {
    WarnOfIdleDrafts(model.config(), notices);
  } else if (!model.facts().encodes()) {
    RL_RETURN_IF_ERROR(OpenDrafters(model, setup.hooks, notices, options));
  }
  if (setup.apply_adapters && !model.row_adapters.empty()) {
    RL_RETURN_IF_ERROR(CheckAppliedAdapters(model.adapter_facts));
  }
  RL_ASSIGN_OR_RETURN(session, ModelSession::Open(std::move(model), options, setup.hooks, notices));
  return OkStatus();
}

Status Engine::Impl::OpenDrafters(const LoadedModel& model, const HostHooks& hooks,
                                  Notices& notices, ModelSessionOptions& options) {
  RL_ASSIGN_OR_RETURN(assistant, FindAssistantFor(model, hooks, notices));
  if (!WantsDrafts(model.config()) && !assistant) return OkStatus();
  options =
      WithDrafts(std::move(options), model.config().drafts.max, assistant ? &*assistant : nullptr);
  if (assistant) return OkStatus();
  RL_ASSIGN_OR_RETURN(drafter, OpenDrafter(model, options, hooks, notices));
  if (!drafter) return OkStatus();
  std::vector<Session::RefusedGraph> ignored;  // it needs few of them
  RL_ASSIGN_OR_RETURN(const auto needs, drafter->session().session().PredictMemory(&ignored));
  options.reserved_bytes = needs.front().total();
  return OkStatus();
}

Status Engine::Impl::LimitCaches() {
  const LayeredConfig& layers = session->model().layers;
  const uint64_t available = AvailableHostMemory();
  RL_ASSIGN_OR_RETURN(const uint64_t prefix_bytes, PrefixCacheLimit(layers, available));
  info.prefix_cache_bytes = static_cast<int64_t>(prefix_bytes);
  RL_ASSIGN_OR_RETURN(const uint64_t media_bytes,
                      MediaCacheLimit(layers, available - std::min(available, prefix_bytes)));
  info.media_cache_bytes = static_cast<int64_t>(media_bytes);
  return OkStatus();
}

Status Engine::Impl::WarmUpFor(const EngineSetup& setup, Notices& notices) {
  const WarmUp mode = session->config().backend.warm_up.value_or(setup.warm_up);
  if (mode == WarmUp::kOff) return OkStatus();
  const auto& stop_flag = setup.stop_warm_up ? setup.stop_warm_up : setup.hooks.cancelled;
  const std::atomic<bool>* const stop = stop_flag.get();
  const RowChainOptions usual = UsualChain(sampler, info.vocabulary);
  const bool judges = session->config().drafts.min_probability > 0;
  RL_ASSIGN_OR_RETURN(const SharedAdapters own, adapters->InForce(std::nullopt));
  std::vector<ModelSession*> writers = {session.get()};
  if (drafter) writers.push_back(&drafter->session());
  for (ModelSession* writer : writers) {
    const auto steps =
        StepsOfAnswers(writer->session(), writer->graphs(), usual, judges, own.get());
    RL_RETURN_IF_ERROR(WarmUpSteps(writer->session(), steps, stop));
  }
  RL_RETURN_IF_ERROR(WarmUpOthers(stop, notices));
  if (mode != WarmUp::kAll) return OkStatus();
  for (ModelSession* writer : writers) {
    RL_RETURN_IF_ERROR(WaitForPending(writer->session(), stop));
  }
  return OkStatus();
}

Status Engine::Impl::WarmUpOthers(const std::atomic<bool>* stop, Notices& notices) {
  const Status steps =
      WarmUpSteps(session->session(), OtherSteps(session->session(), session->graphs()), stop);
  if (info.encodes) RL_RETURN_IF_ERROR(steps);  // there is nothing else that an encoder does
  RL_RETURN_IF_ERROR(
      WarnUnlessFatal(steps, "embeddings, log-probabilities of prompts and media", notices));
  // A processor runs towers as it finds them; its memory is better left to others until then.
  if (session->devices().main().description().type == RL_DEVICE_CPU) return OkStatus();
  return WarnUnlessFatal(session->media().Prepare(), "pictures and sounds", notices);
}

Status Engine::Impl::StartEncoder(const EngineSetup& setup) {
  const ModelFacts& facts = session->model().facts();
  const GraphHandle texts = session->graphs().hidden->graph;
  RL_ASSIGN_OR_RETURN(const int64_t shared_rows,
                      SharedRowsOf(session->devices(), session->session().graph(texts)));
  RL_ASSIGN_OR_RETURN(
      const int64_t shared_means,
      SharedMeansOf(session->devices(), session->session(), session->graphs().head));
  runner = std::make_unique<TextEncoder>(
      session->session(),
      TextEncoder::Options{.graphs = session->graphs(),
                           .width = facts.width,
                           .facts = facts.encoder,
                           .shared_rows = shared_rows,
                           .text_alignment = TextAlignmentOf(session->devices()),
                           .shared_means = shared_means,
                           .encoder = &session->media(),
                           .cancelled = setup.hooks.cancelled},
      wakeup);
  return OkStatus();
}

void Engine::Impl::StartScheduler(const EngineSetup& setup) {
  runner = std::make_unique<Scheduler>(
      session->session(),
      SchedulerOptions{.graphs = session->graphs(),
                       .slots = info.slots,
                       .capacity = info.capacity,
                       .vocabulary = info.vocabulary,
                       .chunk = info.chunk,
                       .max_gap = std::chrono::milliseconds(session->config().server.max_gap),
                       .prefix_bytes = static_cast<uint64_t>(info.prefix_cache_bytes),
                       .media_bytes = static_cast<uint64_t>(info.media_cache_bytes),
                       .drafts = DraftsOf(session->config().drafts, setup),
                       .canvas = CanvasesOf(*session),
                       .end_tokens = EndTokens(session->tokenizer()),
                       .encoder = &session->media(),
                       .whole_pictures = session->model().facts().media.whole_pictures,
                       .warn = WarnerOf(setup.hooks),
                       .cancelled = setup.hooks.cancelled,
                       .snapshots = setup.hooks.snapshots,
                       .observer = setup.hooks.observer},
      wakeup);
}

DraftOptions Engine::Impl::DraftsOf(const DraftsConfig& config, const EngineSetup& setup) const {
  if (!config.lookup && !drafter && !assistant) return {};
  return {.most = config.max,
          .least = config.min,
          .lookup = config.lookup,
          .drafter = drafter.get(),
          .assistant = assistant_drafter.get(),
          .equal_rows = session->devices().draft_rows_are_equal(),
          .usual_costs = UsualCosts(session->devices().backend),
          .as_pays = assistant && !config.mtp.value_or(false),
          .min_probability = config.min_probability,
          .acceptance = setup.draft_acceptance};
}

}  // namespace rullama
