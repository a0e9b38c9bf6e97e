#include "engine/api/engine.h"

#include <memory>
#include <utility>
#include <variant>

#include "engine/engine_access.h"
#include "engine/engine_impl.h"
#include "engine/generation_impl.h"
#include "engine/loading/engine_config.h"
#include "engine/loading/logged_notices.h"
#include "engine/request_job.h"

namespace rullama {

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

void Engine::Impl::LookOnDisk(Job& job, std::string_view owner) {
  SnapshotStore* const store = keys->store();
  if (store == nullptr || !job.reuse_prefix || job.cuts.empty()) return;
  auto found = keys->OwnerOf(job.prompt, job.space.adapters, owner);
  if (!found) return;  // the file has changed, and requests fail
  job.owner = *std::move(found);
  // The snapshot that is read waits in memory with the job.
  if (runner->stats().waiting > info.slots) return;
  job.loaded = store->Load(job.owner, job.prompt, job.cuts);
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
  impl_->keys->AdaptersHaveChanged();
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

}  // namespace rullama
