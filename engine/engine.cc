#include "engine/api/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/adapters_in_force.h"
#include "engine/drafts/assistant_drafter.h"
#include "engine/drafts/assistant_file.h"
#include "engine/drafts/cut_points.h"
#include "engine/drafts/draft_model.h"
#include "engine/embeddings.h"
#include "engine/engine_access.h"
#include "engine/generation_impl.h"
#include "engine/home_process.h"
#include "engine/loading/auto_slots.h"
#include "engine/loading/cache_limits.h"
#include "engine/loading/engine_config.h"
#include "engine/loading/logged_notices.h"
#include "engine/loading/model_facts.h"
#include "engine/loading/model_fingerprint.h"
#include "engine/media/media_budget.h"
#include "engine/media/soft_row_ids.h"
#include "engine/model_session.h"
#include "engine/request_job.h"
#include "engine/scheduling/scheduler.h"
#include "engine/scheduling/text_encoder.h"
#include "engine/scheduling/warm_up.h"
#include "engine/texts_in_flight.h"
#include "engine/turn_taker.h"
#include "models/common/encoder_model.h"

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

size_t MaxTokens(int64_t most) { return most < 0 ? kAnyTokens : static_cast<size_t>(most); }

// -ln softmax(logits)[target].
double SurpriseOf(std::span<const float> logits, int32_t target) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - max);
  return max + std::log(sum) - logits[static_cast<size_t>(target)];
}

}  // namespace

struct RULLAMA_LOCAL Engine::Impl {
 public:
  Status Start(LoadedModel model, const EngineSetup& setup, Notices& notices);
  // Error model.canvas for a model that denoises.
  [[nodiscard]] Status CheckPredicts() const;
  // Error model.encoder for a model that makes embeddings alone.
  [[nodiscard]] Status CheckWrites() const {
    return info.encodes ? Status(WritesNoText()) : OkStatus();
  }
  // Where the steps that read a prompt end.
  [[nodiscard]] std::vector<int64_t> CutsOf(std::span<const int32_t> prompt) const {
    const Model& model = *session->model().model;
    const auto borders = model.BordersOf(session->tokenizer(), prompt);
    const auto media = SoftRowsOf(prompt, model.facts().media.whole_pictures);
    return CutPoints(std::ssize(prompt), session->chunk(), borders, media);
  }
  // A job whose results are rows of these tokens.
  Result<std::unique_ptr<Job>> RowsJob(Job::Kind kind, std::vector<int32_t> ids) const;
  // Hands a job to the runner. At its end the channel has RequestEnd or Error.
  std::shared_ptr<AnswerChannel> Enqueue(std::unique_ptr<Job> job);
  // The next item of a channel other than progress. Errors: as of Await().
  [[nodiscard]] static Result<ChannelItem> TakeFrom(AnswerChannel& channel);
  // The next item of a job's channel other than progress. Errors: what the job ended with;
  // run.cancelled at the end of the engine and if `stop` is requested.
  Result<ChannelItem> Await(std::unique_ptr<Job> job, const std::stop_token& stop = {});
  // A job that is done with a slot. Error usage.request for one that there is not.
  [[nodiscard]] Result<std::unique_ptr<Job>> SlotJob(Job::Kind kind, int32_t slot,
                                                     uint64_t client) const;
  Result<SlotResult> AwaitSlot(std::unique_ptr<Job> job, const std::stop_token& stop);
  // Waits for others that save or restore the slot, which exists. Error run.cancelled.
  Result<TurnTaker::Turn> TakeTransfer(int32_t slot, const std::stop_token& stop) const {
    return transfers[static_cast<size_t>(slot)].Take(stop);
  }
  // Error usage.request.
  [[nodiscard]] Status CheckDimensions(int64_t dimensions) const {
    const int64_t width = info.embedding_width;
    if (width == 0 || (dimensions >= 0 && dimensions <= width)) return OkStatus();
    return MakeError(ErrorKind::kUsage, "usage.request", "dimensions is {}, expected 1 to {}",
                     dimensions, width);
  }
  // A job of kEmbed. Errors: those of Engine::Embed() about ids.
  Result<std::unique_ptr<Job>> EmbeddingJobOf(std::span<const int32_t> ids,
                                              const EmbeddingOptions& options) const;
  // The vector of a job of kEmbed that was enqueued, cut and scaled to length 1.
  [[nodiscard]] static Result<std::vector<float>> AwaitEmbedding(AnswerChannel& channel,
                                                                 int64_t dimensions);
  // For snapshots of tokens that were read with these adapters.
  Result<ModelFingerprint> FingerprintFor(std::span<const int32_t> tokens,
                                          const SharedAdapters& used);
  // Opens what drafts, and adds what it needs to the options of the session.
  Status OpenDrafters(const LoadedModel& model, const HostHooks& hooks, Notices& notices,
                      ModelSessionOptions& options);
  // The same for a file of a slot.
  Result<std::vector<ModelFingerprint>> FingerprintsFor(std::span<const int32_t> tokens,
                                                        const SharedAdapters& used);
  // Whether the fingerprints for snapshots on disk are known.
  [[nodiscard]] bool hashed() const {
    return hashing_.valid() &&
           hashing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  // Lets the snapshots on disk of requests that choose no adapters be of use.
  void ExpectOwn();
  // Looks for a part of the job's prompt on the disk, and lets its snapshots be kept there.
  void LookOnDisk(Job& job, std::string_view owner);
  // Null without snapshots on disk.
  Result<std::shared_ptr<const SnapshotStore::Owner>> OwnerOf(std::span<const int32_t> tokens,
                                                              const SharedAdapters& used,
                                                              std::string_view owner);
  // The adapters that a saved slot was read with. Error slot.mismatch if it is of another model or
  // configuration, or one of them is not loaded.
  Result<SharedAdapters> CheckFingerprints(const StoredSlot& stored);
  // Whether the file is the owner's and a slot holds it. Errors: slot.not_found, slot.too_long.
  [[nodiscard]] Status CheckSlot(const SlotFileHeader& stored, const SlotFile& file) const;
  [[nodiscard]] DraftOptions DraftsOf(const DraftsConfig& config, const EngineSetup& setup) const;
  // Compiles what requests can need, as far as the configuration or else the setup asks for it.
  Status WarmUpFor(const EngineSetup& setup, Notices& notices);
  // Compiles what the model's text answers, or an encoder's vectors, do not need. Warns of what
  // fails.
  Status WarmUpOthers(const std::atomic<bool>* stop, Notices& notices);
  [[nodiscard]] MediaLimits MediaLimitsOf(const Request& request,
                                          const std::stop_token& stop) const;

  HomeProcess home;
  std::optional<AssistantFile> assistant;  // none: the model drafts in another way, or not at all
  std::unique_ptr<ModelSession> session;   // uses the assistant
  std::unique_ptr<AnswerConstraints> constraints;  // uses the model of the session
  std::unique_ptr<AdapterTable> adapters;
  SamplerSettings sampler;
  bool has_seed = false;
  ModelInfo info;
  std::shared_ptr<Wakeup> wakeup = std::make_shared<Wakeup>();
  std::shared_ptr<MediaBudget> media_budget;
  std::shared_ptr<SnapshotStore> snapshots;  // null: prompts are not kept on disk
  // By slot: to and from a file. Host memory has what each slot holds once at most.
  std::unique_ptr<TurnTaker[]> transfers;
  std::unique_ptr<ModelDrafter> drafter;                // null: no draft model
  std::unique_ptr<AssistantDrafter> assistant_drafter;  // null: no assistant
  std::unique_ptr<JobRunner> runner;                    // uses the session and the drafters

 private:
  std::mutex mutex_;  // guards the fingerprints
  std::vector<ModelFingerprint> fingerprints_;
  std::optional<ModelFingerprint> towers_;
  std::future<void> hashing_;  // of the model, for the snapshots on disk
};

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
  const ModelFacts& facts = session->model().facts();
  const LayeredConfig& layers = session->model().layers;
  const uint64_t available = AvailableHostMemory();
  RL_ASSIGN_OR_RETURN(const uint64_t prefix_bytes, PrefixCacheLimit(layers, available));
  info.prefix_cache_bytes = static_cast<int64_t>(prefix_bytes);
  RL_ASSIGN_OR_RETURN(const uint64_t media_bytes,
                      MediaCacheLimit(layers, available - std::min(available, prefix_bytes)));
  info.media_cache_bytes = static_cast<int64_t>(media_bytes);
  RL_RETURN_IF_ERROR(WarmUpFor(setup, notices));
  if (facts.encodes()) {
    const GraphHandle texts = session->graphs().hidden->graph;
    RL_ASSIGN_OR_RETURN(const int64_t shared_rows,
                        SharedRowsOf(session->devices(), session->session().graph(texts)));
    runner = std::make_unique<TextEncoder>(
        session->session(),
        TextEncoder::Options{.graphs = session->graphs(),
                             .width = facts.width,
                             .facts = facts.encoder,
                             .shared_rows = shared_rows,
                             .text_alignment = TextAlignmentOf(session->devices()),
                             .encoder = &session->media(),
                             .cancelled = setup.hooks.cancelled},
        wakeup);
    return OkStatus();
  }
  snapshots = setup.hooks.snapshots;
  if (snapshots) {
    hashing_ = std::async(std::launch::async, [this] {
      static_cast<void>(OwnerOf({}, {}, std::string_view()));
      ExpectOwn();
    });
  }
  runner = std::make_unique<Scheduler>(
      session->session(),
      SchedulerOptions{.graphs = session->graphs(),
                       .slots = info.slots,
                       .capacity = info.capacity,
                       .vocabulary = info.vocabulary,
                       .chunk = info.chunk,
                       .max_gap = std::chrono::milliseconds(session->config().server.max_gap),
                       .prefix_bytes = prefix_bytes,
                       .media_bytes = media_bytes,
                       .drafts = DraftsOf(session->config().drafts, setup),
                       .canvas = CanvasesOf(*session),
                       .end_tokens = EndTokens(session->tokenizer()),
                       .encoder = &session->media(),
                       .whole_pictures = facts.media.whole_pictures,
                       .warn = WarnerOf(setup.hooks),
                       .cancelled = setup.hooks.cancelled,
                       .snapshots = snapshots,
                       .observer = setup.hooks.observer},
      wakeup);
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

DraftOptions Engine::Impl::DraftsOf(const DraftsConfig& config, const EngineSetup& setup) const {
  if (!config.lookup && !drafter && !assistant) return {};
  return {.most = config.max,
          .least = config.min,
          .lookup = config.lookup,
          .drafter = drafter.get(),
          .assistant = assistant_drafter.get(),
          .equal_rows = session->devices().draft_rows_are_equal(),
          .as_pays = assistant && !config.mtp.value_or(false),
          .min_probability = config.min_probability,
          .acceptance = setup.draft_acceptance};
}

MediaLimits Engine::Impl::MediaLimitsOf(const Request& request, const std::stop_token& stop) const {
  const int64_t capacity = session->model().capacity();
  return {
      .max_tokens = request.max_context > 0 ? std::min(request.max_context, capacity) : capacity,
      .budget = media_budget.get(),
      .stop = stop};
}

Status Engine::Impl::CheckPredicts() const {
  if (info.canvas_length == 0) return OkStatus();
  return MakeError(ErrorKind::kUsage, "model.canvas",
                   "this model denoises canvases and predicts no next token");
}

Result<std::unique_ptr<Job>> Engine::Impl::RowsJob(Job::Kind kind, std::vector<int32_t> ids) const {
  RL_RETURN_IF_ERROR(home.Check());
  RL_RETURN_IF_ERROR(CheckPredicts());
  if (kind != Job::Kind::kEmbed) RL_RETURN_IF_ERROR(CheckWrites());
  if (ids.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "there are no tokens, expected at least 1");
  }
  for (const int32_t id : ids) {
    if (session->tokenizer().Contains(id)) continue;
    return MakeError(ErrorKind::kUsage, "tokenizer.id",
                     "token id {} is outside the vocabulary of {} tokens", id,
                     session->tokenizer().size());
  }
  RL_RETURN_IF_ERROR(CheckFits(session->model(), std::ssize(ids), 0));
  auto job = std::make_unique<Job>();
  job->kind = kind;
  job->prompt = std::move(ids);
  return job;
}

std::shared_ptr<AnswerChannel> Engine::Impl::Enqueue(std::unique_ptr<Job> job) {
  job->channel = std::make_shared<AnswerChannel>(wakeup);
  std::shared_ptr<AnswerChannel> channel = job->channel;
  runner->Submit(std::move(job));
  return channel;
}

Result<ChannelItem> Engine::Impl::Await(std::unique_ptr<Job> job, const std::stop_token& stop) {
  const std::shared_ptr<AnswerChannel> channel = Enqueue(std::move(job));
  const std::stop_callback cancel(stop, [&channel] { channel->Cancel(); });
  return TakeFrom(*channel);
}

Result<ChannelItem> Engine::Impl::TakeFrom(AnswerChannel& channel) {
  ChannelItem item = channel.Take();
  while (std::holds_alternative<ReadProgress>(item)) item = channel.Take();
  if (auto* error = std::get_if<Error>(&item)) return tl::unexpected(std::move(*error));
  const auto* end = std::get_if<RequestEnd>(&item);
  if (end != nullptr && end->reason == StopReason::kCancelled) {
    return MakeError(ErrorKind::kRuntime, "run.cancelled", "the engine is being closed");
  }
  return item;
}

Result<std::unique_ptr<Job>> Engine::Impl::SlotJob(Job::Kind kind, int32_t slot,
                                                   uint64_t client) const {
  RL_RETURN_IF_ERROR(home.Check());
  RL_RETURN_IF_ERROR(CheckPredicts());
  RL_RETURN_IF_ERROR(CheckWrites());
  if (slot < 0 || slot >= info.slots) {
    return MakeError(ErrorKind::kUsage, "usage.request", "there is no slot {}, expected 0 to {}",
                     slot, info.slots - 1);
  }
  auto job = std::make_unique<Job>();
  job->kind = kind;
  job->slot = slot;
  job->space.client = client;
  return job;
}

Result<SlotResult> Engine::Impl::AwaitSlot(std::unique_ptr<Job> job, const std::stop_token& stop) {
  RL_ASSIGN_OR_RETURN(ChannelItem item, Await(std::move(job), stop));
  return std::get<SlotResult>(std::move(item));
}

Result<std::vector<ModelFingerprint>> Engine::Impl::FingerprintsFor(std::span<const int32_t> tokens,
                                                                    const SharedAdapters& used) {
  const std::lock_guard lock(mutex_);
  if (fingerprints_.empty()) {
    RL_ASSIGN_OR_RETURN(fingerprints_, FingerprintsOf(*session));
  }
  std::vector<ModelFingerprint> all = fingerprints_;
  if (std::ranges::any_of(tokens, IsSoftRow)) {
    if (!towers_) {
      RL_ASSIGN_OR_RETURN(towers_, FingerprintWithTowers(*session, all.front()));
    }
    all.push_back(*towers_);
  }
  // Rows that choose none of several adapters may differ in the last bits from those of a model
  // without any.
  if (adapters->can_choose()) all[kAdapterFingerprint] = {0, used ? used->key : 0};
  return all;
}

Result<std::shared_ptr<const SnapshotStore::Owner>> Engine::Impl::OwnerOf(
    std::span<const int32_t> tokens, const SharedAdapters& used, std::string_view owner) {
  if (!snapshots) return nullptr;
  RL_ASSIGN_OR_RETURN(std::vector<ModelFingerprint> fingerprints, FingerprintsFor(tokens, used));
  SnapshotStore::Owner out{.fingerprints = std::move(fingerprints), .client = Sha256(owner)};
  if (std::ranges::any_of(tokens, IsSoftRow)) {
    out.towers = out.fingerprints.back();
    out.fingerprints.pop_back();
  }
  // Requests may name any factors: only those of the engine are remembered.
  RL_ASSIGN_OR_RETURN(const SharedAdapters own, adapters->InForce(std::nullopt));
  if (!used || AreSame(own, used)) snapshots->Expect(out);
  return std::make_shared<const SnapshotStore::Owner>(std::move(out));
}

void Engine::Impl::ExpectOwn() {
  if (const auto own = adapters->InForce(std::nullopt)) {
    static_cast<void>(OwnerOf({}, *own, std::string_view()));
  }
}

void Engine::Impl::LookOnDisk(Job& job, std::string_view owner) {
  if (!snapshots || !job.reuse_prefix || job.cuts.empty()) return;
  auto found = OwnerOf(job.prompt, job.space.adapters, owner);
  if (!found) return;  // the file has changed, and requests fail
  job.owner = *std::move(found);
  // The snapshot that is read waits in memory with the job.
  if (runner->stats().waiting > info.slots) return;
  job.loaded = snapshots->Load(job.owner, job.prompt, job.cuts);
}

Result<SharedAdapters> Engine::Impl::CheckFingerprints(const StoredSlot& stored) {
  RL_ASSIGN_OR_RETURN(std::vector<ModelFingerprint> expected, FingerprintsFor(stored.tokens, {}));
  const std::span<const ModelFingerprint> parts = stored.fingerprints;
  const size_t common = std::min(parts.size(), expected.size());
  // The adapters in force follow what every slot has.
  const auto used = adapters->Restored(parts.subspan(common));
  if (used) {
    RL_ASSIGN_OR_RETURN(expected, FingerprintsFor(stored.tokens, *used));
  }
  const auto [found, missing] = std::ranges::mismatch(parts.first(common), expected);
  if (used && missing == expected.end()) return *used;
  const auto index = missing == expected.end() ? kAdapterFingerprint
                                               : static_cast<size_t>(missing - expected.begin());
  return MakeError(ErrorKind::kUsage, "slot.mismatch",
                   "the slot was saved with another {}; read the prompt again",
                   FingerprintName(index));
}

Status Engine::Impl::CheckSlot(const SlotFileHeader& stored, const SlotFile& file) const {
  if (stored.owner != Sha256(file.owner)) {
    return MakeError(ErrorKind::kIo, "slot.not_found", "there is no file '{}'",
                     std::filesystem::path(file.path).filename().string());
  }
  if (std::ssize(stored.tokens) <= info.capacity) return OkStatus();
  return MakeError(ErrorKind::kUsage, "slot.too_long",
                   "the saved slot has {} tokens, and a slot holds {}; start the server with a "
                   "larger context.capacity",
                   stored.tokens.size(), info.capacity);
}

Result<ModelFingerprint> Engine::Impl::FingerprintFor(std::span<const int32_t> tokens,
                                                      const SharedAdapters& used) {
  RL_ASSIGN_OR_RETURN(const std::vector<ModelFingerprint> parts, FingerprintsFor(tokens, used));
  return Joined(parts);
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
// As ~Generation.
Engine::~Engine() {
  if (!impl_->home.here()) static_cast<void>(impl_.release());
}

Result<std::shared_ptr<Engine>> Engine::Open(const EngineOptions& options) {
  LoggedNotices notices(options);
  RL_ASSIGN_OR_RETURN(LayeredConfig config, ConfigOf(options));
  const AdapterUse use = options.choose_adapters ? AdapterUse::kByRow : AdapterUse::kForAll;
  RL_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(std::move(config), {}, notices, use));
  return EngineAccess::Open(std::move(model), {.plugin_paths = options.plugin_paths}, notices);
}

Result<std::shared_ptr<Engine>> EngineAccess::Open(LoadedModel model, const EngineSetup& setup,
                                                   Notices& notices) {
  auto impl = std::make_unique<Engine::Impl>();
  RL_RETURN_IF_ERROR(impl->Start(std::move(model), setup, notices));
  return std::shared_ptr<Engine>(new Engine(std::move(impl)));
}

ModelInfo EngineAccess::FileInfo(const ModelFile& file) {
  ModelInfo info;
  info.name = file.name;
  info.architecture = file.file->FindString("general.architecture").value_or("").value_or("");
  info.file_bytes = static_cast<int64_t>(file.file->total_bytes());
  info.parameters = static_cast<int64_t>(ParameterCount(*file.file));
  info.quantization = QuantizationOf(*file.file);
  info.digest = ContentDigest(file);
  return info;
}

const ModelSession& EngineAccess::SessionOf(const Engine& engine) { return *engine.impl_->session; }

void EngineAccess::Finish(Engine& engine) { engine.impl_->runner.reset(); }

const ModelInfo& Engine::info() const { return impl_->info; }

std::string Engine::Metadata(size_t max_items) const {
  return MetadataJson(*impl_->session->model().file.file, max_items);
}

EngineStats Engine::stats() const {
  EngineStats stats = impl_->runner->stats();
  stats.schema_seconds = impl_->constraints->compile_seconds();
  return stats;
}

std::vector<SlotActivity> Engine::slots() const { return impl_->runner->slots(); }

std::vector<AdapterInfo> Engine::adapters() const { return impl_->adapters->List(); }

bool Engine::chooses_adapters() const { return impl_->adapters->can_choose(); }

Status Engine::SetAdapterScales(std::span<const AdapterScale> scales) {
  RL_RETURN_IF_ERROR(impl_->adapters->SetScales(scales));
  // While the model is being hashed, what follows that comes to the same.
  if (impl_->hashed()) impl_->ExpectOwn();
  return OkStatus();
}

Result<Generation> Engine::Submit(const Request& request) {
  RL_ASSIGN_OR_RETURN(std::vector<Generation> answers, SubmitChoices(request, 1));
  return std::move(answers.front());
}

Result<std::vector<Generation>> Engine::SubmitChoices(const Request& request, int64_t count,
                                                      const std::stop_token& stop) {
  RL_RETURN_IF_ERROR(impl_->home.Check());
  RL_RETURN_IF_ERROR(impl_->CheckWrites());
  if (count < 1 || count > impl_->info.slots) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "{} answers are asked for, expected 1 to the {} of context.slots", count,
                     impl_->info.slots);
  }
  if (request.slot < -1 || request.slot >= impl_->info.slots) {
    return MakeError(ErrorKind::kUsage, "usage.request", "slot {} is asked for, expected -1 to {}",
                     request.slot, impl_->info.slots - 1);
  }
  SamplerSettings sampler = impl_->sampler;
  if (!impl_->has_seed) sampler.seed = DrawSeed();
  const LoadedModel& model = impl_->session->model();
  RL_ASSIGN_OR_RETURN(const DecodedMedia media,
                      DecodeMedia(model, request.media, impl_->MediaLimitsOf(request, stop)));
  RL_ASSIGN_OR_RETURN(const SharedAdapters used, impl_->adapters->InForce(request.adapters));
  std::vector<Generation> answers;
  answers.reserve(static_cast<size_t>(count));
  std::unique_ptr<Job> first;
  for (int64_t i = 0; i < count; ++i) {
    RL_ASSIGN_OR_RETURN(
        PreparedRequest prepared,
        PrepareRequest(model, sampler, *impl_->constraints, request, media,
                       {.choice = request.choice + static_cast<uint32_t>(i), .alone = count == 1}));
    Job& job = *prepared.job;
    job.space.adapters = used;
    job.cuts = impl_->CutsOf(job.prompt);
    if (i > 0) job.slot = -1;
    if (i == 0) impl_->LookOnDisk(job, request.owner);
    job.channel = std::make_shared<AnswerChannel>(impl_->wakeup, request.every_draft);
    auto generation = std::make_unique<Generation::Impl>(
        shared_from_this(), job.channel, impl_->session->tokenizer(), std::move(prepared.text),
        prepared.logprobs);
    generation->completion.prompt_tokens = std::ssize(job.prompt);
    for (const auto& medium : media) {
      generation->completion.media.push_back(FactsOf(*medium));
    }
    generation->completion.ignored_keywords = job.constraint.ignored;
    generation->completion.unenforced_keywords = job.constraint.unenforced;
    generation->completion.seed = static_cast<int64_t>(job.sampling.seed);
    answers.push_back(Generation(std::move(generation)));
    (first ? first->choices.emplace_back() : first) = std::move(prepared.job);
  }
  impl_->runner->Submit(std::move(first));
  return answers;
}

Result<int64_t> Engine::CountPrompt(const Request& request, int64_t most) const {
  RL_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, PromptTokens(request, most));
  return std::ssize(prompt);
}

Result<std::vector<int32_t>> Engine::PromptTokens(const Request& request, int64_t most) const {
  return PromptIds(impl_->session->model(), request, most, *impl_->media_budget);
}

TokenizerFacts Engine::tokenizer_facts() const {
  const LoadedModel& model = impl_->session->model();
  const Tokenizer& tokenizer = impl_->session->tokenizer();
  const auto text_of = [&](const char* key) {
    const auto id = model.file.file->FindU32(key);
    if (!id || !*id || !tokenizer.Contains(static_cast<int32_t>(**id))) return std::string();
    return std::string(tokenizer.TokenText(static_cast<int32_t>(**id)));
  };
  return {.bos = text_of("tokenizer.ggml.bos_token_id"),
          .eos = text_of("tokenizer.ggml.eos_token_id"),
          .padding = text_of("tokenizer.ggml.padding_token_id"),
          .unknown = text_of("tokenizer.ggml.unknown_token_id"),
          .chat_template = model.model->JinjaTemplate()};
}

Result<std::vector<int32_t>> Engine::Tokenize(std::string_view text, bool parse_special,
                                              bool add_bos, int64_t most) const {
  return impl_->session->tokenizer().Encode(
      text, {.parse_special = parse_special, .add_bos = add_bos, .max_tokens = MaxTokens(most)});
}

Result<std::string> Engine::Detokenize(std::span<const int32_t> ids, bool show_control) const {
  return impl_->session->tokenizer().Decode(ids, show_control);
}

Result<std::string> Engine::TokenBytes(int32_t id) const {
  const Tokenizer& tokenizer = impl_->session->tokenizer();
  if (!tokenizer.Contains(id)) {
    return MakeError(ErrorKind::kUsage, "tokenizer.id",
                     "token id {} is outside the vocabulary of {} tokens", id, tokenizer.size());
  }
  std::string bytes;
  tokenizer.AppendBytes(id, bytes);
  return bytes;
}

Result<std::vector<int32_t>> Engine::ChatTokens(std::string_view messages, std::string_view tools,
                                                bool thinking, int64_t most) const {
  RL_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJson(messages, "messages"));
  nlohmann::json functions;
  if (!tools.empty()) {
    RL_ASSIGN_OR_RETURN(functions, ParseJson(tools, "tools"));
  }
  RL_ASSIGN_OR_RETURN(EncodedChat chat, impl_->session->model().model->EncodeChat(
                                            impl_->session->tokenizer(), parsed, functions,
                                            {.thinking = thinking, .max_tokens = MaxTokens(most)}));
  return std::move(chat.ids);
}

Result<std::vector<int32_t>> Engine::EmbeddingTokens(std::string_view text, std::string_view task,
                                                     int64_t most) const {
  const LoadedModel& model = impl_->session->model();
  RL_ASSIGN_OR_RETURN(const std::string_view prompt, PromptFor(*model.model, task));
  const std::string whole = prompt.empty() ? std::string() : fmt::format("{}{}", prompt, text);
  RL_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                      Tokenize(prompt.empty() ? text : std::string_view(whole),
                               /*parse_special=*/false, /*add_bos=*/true, most));
  if (!impl_->info.encodes) return ids;
  RL_ASSIGN_OR_RETURN(const TokenId end, EndOfText(model));
  ids.push_back(end);
  return ids;
}

Result<std::vector<float>> Engine::Embed(std::string_view text, const EmbeddingOptions& options) {
  RL_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, EmbeddingTokens(text, options.task));
  return Embed(ids, options.dimensions, options.adapters);
}

Result<std::vector<float>> Engine::Embed(std::span<const int32_t> ids, int64_t dimensions,
                                         const std::optional<std::vector<AdapterScale>>& adapters) {
  const EmbeddingOptions options{.dimensions = dimensions, .adapters = adapters};
  RL_ASSIGN_OR_RETURN(auto job, impl_->EmbeddingJobOf(ids, options));
  return Impl::AwaitEmbedding(*impl_->Enqueue(std::move(job)), dimensions);
}

std::vector<Result<std::vector<float>>> Engine::EmbedEach(
    std::span<const std::vector<int32_t>> texts, const EmbeddingOptions& options,
    const std::stop_token& stop) {
  std::vector<Result<std::unique_ptr<Job>>> jobs;
  jobs.reserve(texts.size());
  for (const std::vector<int32_t>& ids : texts) {
    jobs.push_back(impl_->EmbeddingJobOf(ids, options));
  }
  const BackendDevices& devices = impl_->session->devices();
  return EmbedAll(
      std::move(jobs),
      {.rows_of_step = SharedRowsOf(devices),
       .alignment = TextAlignmentOf(devices),
       .enqueue = [this](auto job) { return impl_->Enqueue(std::move(job)); },
       .await = [&](auto& channel) { return Impl::AwaitEmbedding(channel, options.dimensions); }},
      stop);
}

Result<std::unique_ptr<Job>> Engine::Impl::EmbeddingJobOf(std::span<const int32_t> ids,
                                                          const EmbeddingOptions& options) const {
  RL_RETURN_IF_ERROR(CheckDimensions(options.dimensions));
  if (info.encodes) RL_RETURN_IF_ERROR(CheckBeginsWithBos(session->tokenizer(), ids));
  RL_ASSIGN_OR_RETURN(auto job, RowsJob(Job::Kind::kEmbed, {ids.begin(), ids.end()}));
  RL_ASSIGN_OR_RETURN(job->space.adapters, adapters->InForce(options.adapters));
  return job;
}

Result<std::vector<float>> Engine::EmbedContent(const Request& content,
                                                const EmbeddingOptions& options) {
  RL_RETURN_IF_ERROR(impl_->home.Check());
  RL_RETURN_IF_ERROR(impl_->CheckDimensions(options.dimensions));
  const LoadedModel& model = impl_->session->model();
  if (!impl_->info.encodes) {
    return MakeError(ErrorKind::kUsage, "model.encoder",
                     "parts are embedded by embedding models alone; give a text or token ids");
  }
  RL_ASSIGN_OR_RETURN(const std::string_view prompt, PromptFor(*model.model, options.task));
  RL_ASSIGN_OR_RETURN(const DecodedMedia media,
                      DecodeMedia(model, content.media, impl_->MediaLimitsOf(content, {})));
  RL_ASSIGN_OR_RETURN(auto job, EmbeddingJob(model, content, prompt, media));
  return Impl::AwaitEmbedding(*impl_->Enqueue(std::move(job)), options.dimensions);
}

Result<std::vector<float>> Engine::Impl::AwaitEmbedding(AnswerChannel& channel,
                                                        int64_t dimensions) {
  RL_ASSIGN_OR_RETURN(ChannelItem item, TakeFrom(channel));
  return FinishEmbedding(std::get<ResultRows>(std::move(item)).values, dimensions);
}

Status Engine::Logits(
    std::span<const int32_t> ids,
    const std::function<bool(int64_t first, std::span<const float> logits)>& on_rows) {
  RL_ASSIGN_OR_RETURN(auto job, impl_->RowsJob(Job::Kind::kLogits, {ids.begin(), ids.end()}));
  RL_ASSIGN_OR_RETURN(job->space.adapters, impl_->adapters->InForce(std::nullopt));
  const std::shared_ptr<AnswerChannel> channel = impl_->Enqueue(std::move(job));
  for (int64_t done = 0;;) {
    ChannelItem item = channel->Take();
    if (auto* error = std::get_if<Error>(&item)) return tl::unexpected(std::move(*error));
    const auto* rows = std::get_if<ResultRows>(&item);
    if (rows == nullptr) {
      if (done == std::ssize(ids) || channel->cancelled()) return OkStatus();
      return MakeError(ErrorKind::kRuntime, "run.cancelled", "the engine is being closed");
    }
    if (channel->cancelled()) continue;
    const auto bad = std::ranges::find_if(rows->values, [](float x) { return std::isnan(x); });
    if (bad != rows->values.end()) {
      channel->Cancel();
      return MakeError(ErrorKind::kRuntime, "backend.nan",
                       "the logits after position {} are not numbers",
                       rows->first + (bad - rows->values.begin()) / impl_->info.vocabulary);
    }
    done = rows->first + std::ssize(rows->values) / impl_->info.vocabulary;
    if (!on_rows(rows->first, rows->values)) channel->Cancel();
  }
}

Result<double> Engine::NegativeLogLikelihood(std::span<const int32_t> ids) {
  if (ids.size() < 2) {
    return MakeError(ErrorKind::kUsage, "usage.request", "there are {} tokens, expected at least 2",
                     ids.size());
  }
  const auto vocabulary = static_cast<size_t>(impl_->info.vocabulary);
  double sum = 0;
  RL_RETURN_IF_ERROR(Logits(ids, [&](int64_t first, std::span<const float> logits) {
    for (size_t row = 0; row * vocabulary < logits.size(); ++row) {
      const size_t next = static_cast<size_t>(first) + row + 1;
      if (next < ids.size()) {
        sum += SurpriseOf(logits.subspan(row * vocabulary, vocabulary), ids[next]);
      }
    }
    return true;
  }));
  return sum;
}

Result<int64_t> Engine::SavePrompt(const Request& request, const std::string& path) {
  RL_RETURN_IF_ERROR(impl_->home.Check());
  RL_RETURN_IF_ERROR(impl_->CheckPredicts());
  RL_RETURN_IF_ERROR(impl_->CheckWrites());
  const LoadedModel& loaded = impl_->session->model();
  RL_ASSIGN_OR_RETURN(const DecodedMedia media,
                      DecodeMedia(loaded, request.media, impl_->MediaLimitsOf(request, {})));
  RL_ASSIGN_OR_RETURN(PreparedRequest prepared,
                      PrepareRequest(loaded, impl_->sampler, *impl_->constraints, request, media,
                                     {.choice = request.choice}));
  Job& job = *prepared.job;
  job.cuts = impl_->CutsOf(job.prompt);
  if (job.cuts.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.request",
                     "the prompt has {} tokens, expected at least one chunk of {}; a shorter one "
                     "is read faster than it is loaded, or set context.prefill_chunk",
                     job.prompt.size(), impl_->session->chunk());
  }
  job.kind = Job::Kind::kSave;
  RL_ASSIGN_OR_RETURN(job.space.adapters, impl_->adapters->InForce(request.adapters));
  job.prompt.resize(static_cast<size_t>(job.cuts.back()));
  RL_ASSIGN_OR_RETURN(const ModelFingerprint model,
                      impl_->FingerprintFor(job.prompt, job.space.adapters));
  RL_ASSIGN_OR_RETURN(ChannelItem item, impl_->Await(std::move(prepared.job)));
  auto& stored = std::get<StoredSnapshot>(item);
  stored.model = model;
  RL_RETURN_IF_ERROR(WriteSnapshot(stored, path));
  return std::ssize(stored.tokens);
}

Result<int64_t> Engine::LoadPrompt(const std::string& path) {
  RL_RETURN_IF_ERROR(impl_->home.Check());
  RL_RETURN_IF_ERROR(impl_->CheckPredicts());
  RL_RETURN_IF_ERROR(impl_->CheckWrites());
  RL_ASSIGN_OR_RETURN(StoredSnapshot stored, ReadSnapshot(path));
  RL_ASSIGN_OR_RETURN(const SharedAdapters used, impl_->adapters->InForce(std::nullopt));
  RL_ASSIGN_OR_RETURN(const ModelFingerprint model, impl_->FingerprintFor(stored.tokens, used));
  const int64_t tokens = std::ssize(stored.tokens);
  const std::vector<int64_t> cuts = impl_->CutsOf(stored.tokens);
  if (stored.model != model || cuts.empty() || cuts.back() != tokens) {
    return MakeError(
        ErrorKind::kUsage, "snapshot.mismatch",
        "{} was stored with the fingerprint {:016x}{:016x}, expected {:016x}{:016x}: "
        "another model, mmproj, backend, device, version or chunk length, or other adapters "
        "than those of the engine (Engine::SetAdapterScales); store the prompt again",
        path, stored.model[0], stored.model[1], model[0], model[1]);
  }
  RL_RETURN_IF_ERROR(CheckFits(impl_->session->model(), tokens, 0));
  auto job = std::make_unique<Job>();
  job->kind = Job::Kind::kLoad;
  job->space.adapters = used;
  job->prompt = stored.tokens;
  job->stored = std::move(stored);
  RL_RETURN_IF_ERROR(impl_->Await(std::move(job)));
  return tokens;
}

namespace {

// Error slot.not_found for a file with a slot of another owner. One that is damaged is nobody's.
Status CheckReplaceable(const std::filesystem::path& path, const Sha256Digest& owner) {
  const auto header = ReadSlotFileHeader(path);
  if (header && header->owner != owner) {
    return MakeError(ErrorKind::kIo, "slot.not_found",
                     "there is no file '{}' that may be replaced; choose another name",
                     path.filename().string());
  }
  const bool free = header || header.error().id.starts_with("slot.");
  return free ? OkStatus() : Status(tl::unexpected(header.error()));
}

}  // namespace

Result<SlotTransfer> Engine::SaveSlot(int32_t slot, uint64_t client, const SlotFile& file,
                                      const std::stop_token& stop) {
  RL_ASSIGN_OR_RETURN(auto job, impl_->SlotJob(Job::Kind::kStoreSlot, slot, client));
  RL_ASSIGN_OR_RETURN(const TurnTaker::Turn turn, impl_->TakeTransfer(slot, stop));
  RL_ASSIGN_OR_RETURN(const SlotResult result, impl_->AwaitSlot(std::move(job), stop));
  StoredSlot& stored = *result.stored;
  RL_ASSIGN_OR_RETURN(stored.fingerprints, impl_->FingerprintsFor(stored.tokens, result.adapters));
  std::ranges::copy(impl_->adapters->Stored(result.adapters),
                    std::back_inserter(stored.fingerprints));
  stored.owner = Sha256(file.owner);
  const SlotFileWriter writer(stored);
  const uint64_t bytes = writer.file_bytes();
  const uint64_t room = file.room ? file.room() : std::numeric_limits<uint64_t>::max();
  RL_RETURN_IF_ERROR(CheckReplaceable(file.path, stored.owner));
  if (bytes > room) {
    return MakeError(ErrorKind::kIo, "slot.limit",
                     "the file of the slot has {} bytes, and {} are left of server.slot_save_mib; "
                     "remove other files or raise it",
                     bytes, room);
  }
  if (const Status written = writer.Write(file.path); !written) {
    if (written.error().id != "io.disk_full") return tl::unexpected(written.error());
    return MakeError(ErrorKind::kIo, "slot.no_space",
                     "there is no room on the disk for the file of {} bytes; free some space",
                     bytes);
  }
  return SlotTransfer{result.tokens, bytes};
}

Result<SlotTransfer> Engine::RestoreSlot(int32_t slot, uint64_t client, const SlotFile& file,
                                         const std::stop_token& stop) {
  RL_ASSIGN_OR_RETURN(auto job, impl_->SlotJob(Job::Kind::kFillSlot, slot, client));
  // Before its rows take time and memory.
  RL_ASSIGN_OR_RETURN(const SlotFileHeader header, ReadSlotFileHeader(file.path));
  RL_RETURN_IF_ERROR(impl_->CheckSlot(header, file));
  RL_ASSIGN_OR_RETURN(const TurnTaker::Turn turn, impl_->TakeTransfer(slot, stop));
  RL_ASSIGN_OR_RETURN(StoredSlot stored, ReadSlotFile(file.path));
  // Another file may have got the name, and only now is the sum known to agree.
  RL_RETURN_IF_ERROR(impl_->CheckSlot(stored, file));
  RL_ASSIGN_OR_RETURN(job->space.adapters, impl_->CheckFingerprints(stored));
  const int64_t tokens = std::ssize(stored.tokens);
  const uint64_t bytes = SlotFileWriter(stored).file_bytes();
  job->stored_slot = std::make_shared<const StoredSlot>(std::move(stored));
  const auto filled = impl_->AwaitSlot(std::move(job), stop);
  if (filled) return SlotTransfer{tokens, bytes};
  Error error = filled.error();
  if (error.id == "snapshot.mismatch") error.id = "slot.mismatch";
  return tl::unexpected(std::move(error));
}

Result<int64_t> Engine::EraseSlot(int32_t slot, uint64_t client, std::string_view owner,
                                  const std::stop_token& stop) {
  RL_ASSIGN_OR_RETURN(auto job, impl_->SlotJob(Job::Kind::kEraseSlot, slot, client));
  RL_ASSIGN_OR_RETURN(const SlotResult result, impl_->AwaitSlot(std::move(job), stop));
  RL_ASSIGN_OR_RETURN(const auto erased_of, impl_->OwnerOf(result.erased, result.adapters, owner));
  if (erased_of) impl_->snapshots->Erase(*erased_of, result.erased);
  return result.tokens;
}

}  // namespace rullama
