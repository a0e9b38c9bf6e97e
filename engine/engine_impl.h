// The inside of Engine. engine_start.cc opens it; the other engine_*.cc answer the calls of one
// kind each.
//
// Thread safety: that of Engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "engine/adapters_in_force.h"
#include "engine/answer_channel.h"
#include "engine/answer_constraints.h"
#include "engine/api/engine.h"
#include "engine/drafts/assistant_drafter.h"
#include "engine/drafts/assistant_file.h"
#include "engine/drafts/cut_points.h"
#include "engine/drafts/model_drafter.h"
#include "engine/engine_access.h"
#include "engine/home_process.h"
#include "engine/job.h"
#include "engine/loading/model_facts.h"
#include "engine/media/media_budget.h"
#include "engine/media/request_media.h"
#include "engine/media/soft_row_ids.h"
#include "engine/model_session.h"
#include "engine/scheduling/scheduler_options.h"
#include "engine/snapshot_keys.h"
#include "engine/turn_taker.h"
#include "models/common/encoder_model.h"

namespace rullama {

struct RULLAMA_LOCAL Engine::Impl {
 public:
  // Opens the devices, compiles what requests need, and starts the runner.
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
  // Looks for a part of the job's prompt on the disk, and lets its snapshots be kept there.
  void LookOnDisk(Job& job, std::string_view owner);
  // Whether the file is the owner's and a slot holds it. Errors: slot.not_found, slot.too_long.
  [[nodiscard]] Status CheckSlot(const SlotFileHeader& stored, const SlotFile& file) const;
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
  // By slot: to and from a file. Host memory has what each slot holds once at most.
  std::unique_ptr<TurnTaker[]> transfers;
  std::unique_ptr<ModelDrafter> drafter;                // null: no draft model
  std::unique_ptr<AssistantDrafter> assistant_drafter;  // null: no assistant
  std::unique_ptr<JobRunner> runner;                    // uses the session and the drafters
  std::unique_ptr<SnapshotKeys> keys;                   // uses the session and the adapters

 private:
  // The session, and what it needs of drafts.
  Status OpenSession(LoadedModel model, const EngineSetup& setup, Notices& notices);
  // Opens what drafts, and adds what it needs to the options of the session.
  Status OpenDrafters(const LoadedModel& model, const HostHooks& hooks, Notices& notices,
                      ModelSessionOptions& options);
  // How much host memory `info` says that prompts and media are kept in.
  Status LimitCaches();
  // Compiles what requests can need, as far as the configuration or else the setup asks for it.
  Status WarmUpFor(const EngineSetup& setup, Notices& notices);
  // Compiles what the model's text answers, or an encoder's vectors, do not need. Warns of what
  // fails.
  Status WarmUpOthers(const std::atomic<bool>* stop, Notices& notices);
  // The runner of a model that makes embeddings alone.
  Status StartEncoder(const EngineSetup& setup);
  // The runner of a model that writes.
  void StartScheduler(const EngineSetup& setup);
  [[nodiscard]] DraftOptions DraftsOf(const DraftsConfig& config, const EngineSetup& setup) const;
};

}  // namespace rullama
