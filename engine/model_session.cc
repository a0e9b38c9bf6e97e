#include "engine/model_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <random>
#include <utility>

#include "engine/drafts/draft_model.h"
#include "engine/embeddings.h"
#include "engine/loading/backend_check.h"
#include "engine/loading/layer_placement.h"
#include "engine/scheduling/scheduler_options.h"
#include "media/picture_size.h"

namespace rullama {
namespace {

// The options for a session whose assistant is not used.
ModelSessionOptions WithoutAssistant(ModelSessionOptions options, const Config& config) {
  options.assistant = nullptr;
  if (WantsDrafts(config)) return options;
  options.decode_rows = 0;
  options.spare_rows = 0;
  options.max_draft = 0;
  return options;
}

}  // namespace

uint64_t DrawSeed() {
  std::random_device device;
  const uint64_t high = device();
  return ((high << 32) | device()) & static_cast<uint64_t>(INT64_MAX);
}

Result<std::unique_ptr<ModelSession>> ModelSession::Open(LoadedModel model,
                                                         const ModelSessionOptions& options,
                                                         HostHooks hooks, Notices& notices) {
  std::unique_ptr<ModelSession> opened(new ModelSession(std::move(model), std::move(hooks)));
  RL_RETURN_IF_ERROR(opened->Start(options, notices));
  return opened;
}

Status ModelSession::Start(const ModelSessionOptions& options, Notices& notices) {
  RL_ASSIGN_OR_RETURN(sampler_, ResolveSettings(config().sampler, *model_.file.file));
  if (config().sampler.seed.value_or(-1) < 0) sampler_.seed = DrawSeed();
  RL_RETURN_IF_ERROR(sampler_.Validate(model_.facts().vocabulary));
  diffusion_ = ResolveSettings(config().sampler.diffusion, RecommendedBy(model_.facts().canvas));
  if (model_.facts().denoises()) RL_RETURN_IF_ERROR(diffusion_.Validate());
  registry_ = MakeRegistry(config(), options.plugin_paths, hooks_);
  RL_ASSIGN_OR_RETURN(devices_, OpenDevices(*registry_, config(), hooks_, notices));
  // The check comes before gigabytes are read through the mapping.
  RL_RETURN_IF_ERROR(model_.file.file->CheckUnchanged());
  allocated_ = std::make_shared<AllocatedBytes>();
  media_ =
      std::make_unique<MediaEncoder>(model_.towers.towers, model_.tower_file(), devices_.Borrow(),
                                     devices_.policy, allocated_, options.observer);
  const AssistantFile* assistant = options.assistant;
  const bool leaves_out =
      assistant != nullptr && !assistant->asked && !devices_.draft_rows_are_equal();
  if (leaves_out) {
    notices.Note(
        "the drafter of the model is not used: with this backend the length of a draft "
        "could change answers (drafts.mtp: true uses it)");
  }
  const LayeredConfig asked = model_.layers;
  RL_RETURN_IF_ERROR(ChooseSettings(leaves_out ? WithoutAssistant(options, config()) : options));
  if (const Status drafts = CheckDrafts(); !drafts) {
    if (assistant->asked) {
      return MakeError(ErrorKind::kBackend, "draft.refused",
                       "the drafter '{}' does not run with this backend: {}", assistant->name,
                       drafts.error().message);
    }
    notices.Note(fmt::format("the drafter of the model is not used: {}", drafts.error().message));
    // A context that was shortened for the drafter was not asked for.
    model_.layers = asked;
    RL_RETURN_IF_ERROR(ChooseSettings(WithoutAssistant(options, config())));
  }
  load_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - model_.started).count();
  return OkStatus();
}

Result<uint64_t> ModelSession::TowerBytes() const {
  uint64_t bytes = 0;
  for (const MediaKind kind : {MediaKind::kPicture, MediaKind::kSound}) {
    const int64_t longest = media_->LongestOf(kind);
    const int64_t usual =
        kind == MediaKind::kPicture ? std::min<int64_t>(longest, kDefaultImageTokens) : longest;
    RL_ASSIGN_OR_RETURN(const auto needs, media_->PredictMemory(kind, usual));
    bytes += needs.front().total();
  }
  return bytes;
}

// Leaves the session with what the configuration says and the device decides.
Status ModelSession::ChooseSettings(const ModelSessionOptions& options) {
  const std::optional<int64_t> chunk =
      options.max_t > 0 ? std::optional(options.max_t) : config().context.prefill_chunk;
  const auto& host_weights = config().placement.host_weights;
  const bool encodes = model_.facts().encodes();
  auto_choices_ = {.max_t = !chunk && !encodes,
                   .host_weights = !host_weights && devices_.policy.host_device >= 0 &&
                                   !model_.facts().host_tables.empty()};
  DeviceSettings settings{.host_weights = model_.facts().host_tables};
  settings.max_t = std::min(chunk.value_or(settings.max_t), capacity());
  // The rows of a text see each other, so all of them are in one step, which texts may share.
  if (encodes) settings.max_t = std::max(capacity(), SharedRowsOf(devices_));
  settings.host_weights = host_weights.value_or(settings.host_weights);
  devices_.policy.host_weights = settings.host_weights;
  RL_RETURN_IF_ERROR(CheckCacheTypes(*model_.model, config(), devices_));
  std::optional<DeviceSettings> built;
  std::optional<uint64_t> towers;
  std::vector<uint64_t> bytes;  // of each device, by the session that was built last
  const auto need = [&](const DeviceSettings& asked) -> Result<std::vector<uint64_t>> {
    built = asked;
    RL_RETURN_IF_ERROR(BuildSession(options, asked));
    std::vector<Session::RefusedGraph> ignored;  // no request need run them
    RL_ASSIGN_OR_RETURN(const auto needs, session_->PredictMemory(&ignored));
    if (!towers) {
      RL_ASSIGN_OR_RETURN(towers, TowerBytes());
    }
    bytes.clear();
    for (const MemoryNeed& of_device : needs) bytes.push_back(of_device.total());
    bytes.front() += *towers + options.reserved_bytes;
    return bytes;
  };
  const std::vector<DeviceDescription> devices = devices_.DescribeLayerDevices();
  RL_ASSIGN_OR_RETURN(
      settings, ChooseForDevices(std::move(settings), auto_choices_, devices, capacity(), need));
  ModelSessionOptions chosen = options;
  if (options.auto_slots && devices.size() == 1 && IsGpu(devices.front())) {
    if (built != settings) RL_RETURN_IF_ERROR(need(settings));
    RL_ASSIGN_OR_RETURN(const bool are_others,
                        ChooseSlots(SlotRoomOf(devices.front(), bytes.front()), chosen));
    settings.max_t = std::min(settings.max_t, capacity());
    if (are_others) built.reset();
  }
  if (built != settings) RL_RETURN_IF_ERROR(BuildSession(chosen, settings));
  return CheckGraphs(chosen);
}

Result<bool> ModelSession::ChooseSlots(const SlotRoom& room, ModelSessionOptions& options) {
  const CacheTypes types = KvDtypeFor(config(), devices_.backend);
  const SlotChoice given{.slots = options.slots, .capacity = capacity()};
  const SlotChoice choice =
      rullama::ChooseSlots(room, given.capacity, !config().context.capacity, [&](int64_t tokens) {
        return model_.model->CacheBytes(
            {.capacity = tokens, .kv_dtype = types, .spare_rows = options.spare_rows});
      });
  if (choice == given) return false;
  if (choice.capacity != given.capacity) {
    RL_RETURN_IF_ERROR(model_.layers.Set("context.capacity", std::to_string(choice.capacity),
                                         Origin::kFlag, "context.slots"));
  }
  options.slots = choice.slots;
  if (options.decode_rows > 0) options.decode_rows = DecodeRows(options.slots, options.max_draft);
  return true;
}

// A model whose weights no device reads is refused now, not by its first step. Of the graphs of a
// batch a request needs one only: the features of the others may be lacking.
Status ModelSession::CheckGraphs(const ModelSessionOptions& options) const {
  const bool one_will_do = options.outputs == GraphOutputs::kBatch;
  Status first = OkStatus();
  for (const SessionGraph& of : session_->graphs()) {
    Status status = CheckSupport(of.graph, devices_, placement_);
    if (one_will_do && status) return status;
    if (first) first = std::move(status);
  }
  return first;
}

Status ModelSession::CheckDrafts() const {
  if (!graphs_.drafts) return OkStatus();
  for (const DraftGraphs::Length& length : graphs_.drafts->lengths) {
    for (const GraphHandle handle : {length.graph, length.judging}) {
      RL_RETURN_IF_ERROR(
          CheckSupport(session_->graphs()[handle.index].graph, devices_, placement_));
    }
  }
  return OkStatus();
}

int64_t ModelSession::MediaRows(const ModelSessionOptions& options) const {
  if (options.outputs == GraphOutputs::kAllLogits) return std::min(options.media_rows, capacity());
  const bool pictures = model_.Takes(MediaKind::kPicture);
  const bool any = pictures || model_.Takes(MediaKind::kSound);
  if (!any || options.outputs != GraphOutputs::kBatch) return 0;
  const bool whole = pictures && model_.facts().media.whole_pictures;
  const int64_t longest = whole ? int64_t{model_.towers.towers.picture->Budgets().back()} : 0;
  return std::min(std::max(chunk_, longest), capacity());
}

size_t ModelSession::LanesFor(const ModelSessionOptions& options) const {
  const bool shared = options.outputs == GraphOutputs::kBatch && devices_.layer_devices > 1;
  // A trace has one step at a time; one slot has no second step.
  if (!shared || options.observer != nullptr || options.slots < 2) return 0;
  return std::min(devices_.layer_devices, static_cast<size_t>(options.slots));
}

Status ModelSession::BuildSession(const ModelSessionOptions& options,
                                  const DeviceSettings& settings) {
  session_.reset();
  slots_ = options.slots;
  spare_rows_ = options.spare_rows;
  chunk_ = settings.max_t;
  limits_.max_t = chunk_;
  if (options.outputs == GraphOutputs::kBatch) {
    limits_ = BatchLimits(std::max(options.slots, options.decode_rows), chunk_);
  }
  devices_.policy.host_weights = settings.host_weights;
  const Assistant* assistant = options.assistant ? options.assistant->assistant.get() : nullptr;
  RL_ASSIGN_OR_RETURN(
      ModelProgram program,
      BuildModelProgram(*model_.model, {.outputs = options.outputs,
                                        .sampler = &sampler_,
                                        .diffusion = &diffusion_,
                                        .adapters = &model_.adapters,
                                        .row_adapters = &model_.row_adapters,
                                        .slots = options.slots,
                                        .capacity = capacity(),
                                        .kv_dtype = KvDtypeFor(config(), devices_.backend),
                                        .limits = limits_,
                                        .spare_rows = options.spare_rows,
                                        .media_rows = MediaRows(options),
                                        .shared_means = SharedMeansOf(devices_),
                                        .assistant = assistant,
                                        .max_draft = options.max_draft}));
  weight_source_ = std::make_unique<GgufWeights>(*model_.file.file);
  if (assistant != nullptr) {
    weight_source_->AddFile(std::string(assistant->tensor_prefix()), *options.assistant->file);
    RL_ASSIGN_OR_RETURN(auto constants, assistant->MakeConstants(*options.assistant->file));
    std::ranges::move(constants, std::back_inserter(program.constants));
  }
  for (SyntheticConstant& constant : program.constants) {
    weight_source_->AddConstant(std::move(constant.name), constant.type, std::move(constant.bytes));
  }
  for (const auto* constants : {&model_.adapters.constants, &model_.row_adapters.constants}) {
    for (const SyntheticConstant& constant : *constants) {
      weight_source_->AddBorrowedConstant(constant.name, constant.type, constant.bytes);
    }
  }
  RL_ASSIGN_OR_RETURN(placement_,
                      PlaceLayers(program.graphs.front().graph, program.layer_outputs,
                                  config().placement.split, devices_, options.reserved_bytes));
  SessionOptions session;
  session.devices = devices_.Borrow();
  session.policy = placement_;
  session.limits = limits_;
  session.observer = options.observer;
  session.lanes = LanesFor(options);
  session.allocated = allocated_;
  RL_ASSIGN_OR_RETURN(session_,
                      Session::Create(std::move(program.graphs), *weight_source_, session));
  graphs_ = program.handles;
  for (const auto& [name, bytes] : program.inputs) {
    RL_RETURN_IF_ERROR(session_->SetInput(name, bytes));
  }
  return OkStatus();
}

ModelSession::~ModelSession() {
  media_.reset();
  session_.reset();
  devices_.devices.clear();
  if (registry_) registry_->Shutdown();
}

}  // namespace rullama
