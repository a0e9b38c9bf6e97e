// A model on its devices: all that evaluating tokens needs. Whoever wants text uses Engine; the
// commands that look at logits or steps use this.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/runtime/session.h"
#include "engine/drafts/assistant_file.h"
#include "engine/host_hooks.h"
#include "engine/loading/auto_settings.h"
#include "engine/loading/auto_slots.h"
#include "engine/loading/backend_setup.h"
#include "engine/loading/loaded_model.h"
#include "engine/media/media_encoder.h"
#include "engine/model_program.h"
#include "samplers/settings.h"

namespace rullama {

struct ModelSessionOptions {
  GraphOutputs outputs = GraphOutputs::kText;
  int64_t max_t = 0;  // rows of a step; 0: as configured
  // The most rows of a step with soft tokens, for kAllLogits; 0: the session reads none. A session
  // of kBatch decides itself.
  int64_t media_rows = 0;
  int64_t slots = 1;        // sequences with a cache of their own
  bool auto_slots = false;  // as auto_slots.h chooses for the device; `slots` are kFewestAutoSlots
  int64_t decode_rows = 0;  // drawn in a step with kBatch; 0: one per slot
  int64_t spare_rows = 0;   // as BuildOptions::spare_rows
  // Borrowed; with kBatch; null: none. One that nobody asked for is left out where the length of a
  // draft could change answers.
  const AssistantFile* assistant = nullptr;
  int64_t max_draft = 0;                       // tokens of the assistant's drafts
  uint64_t reserved_bytes = 0;                 // of the first device, which others will take
  std::vector<std::string> plugin_paths = {};  // searched before those of the configuration
  StepObserver* observer = nullptr;            // borrowed; outlives the session
};

// Owns everything a session needs. Thread safety: one thread at a time.
class ModelSession {
 public:
  // Errors of all the parts: plugins, devices, graph, memory.
  static Result<std::unique_ptr<ModelSession>> Open(LoadedModel model,
                                                    const ModelSessionOptions& options,
                                                    HostHooks hooks, Notices& notices);
  ~ModelSession();
  ModelSession(const ModelSession&) = delete;
  ModelSession& operator=(const ModelSession&) = delete;

  [[nodiscard]] const LoadedModel& model() const { return model_; }
  [[nodiscard]] const Config& config() const { return model_.config(); }
  [[nodiscard]] const Tokenizer& tokenizer() const { return *model_.tokenizer; }
  [[nodiscard]] const BackendDevices& devices() const { return devices_; }
  [[nodiscard]] Session& session() { return *session_; }
  [[nodiscard]] const Session& session() const { return *session_; }
  // What the graphs of the session do.
  [[nodiscard]] const ProgramGraphs& graphs() const { return graphs_; }
  // The towers on the devices of the session, for the thread that uses the session.
  [[nodiscard]] MediaEncoder& media() { return *media_; }
  // The settings of the sampler, with the seed in use.
  [[nodiscard]] const SamplerSettings& sampler() const { return sampler_; }
  // The settings for a model that denoises.
  [[nodiscard]] const EntropyBoundSettings& diffusion() const { return diffusion_; }
  [[nodiscard]] int64_t capacity() const { return model_.capacity(); }
  [[nodiscard]] const StepLimits& limits() const { return limits_; }
  [[nodiscard]] int64_t slots() const { return slots_; }
  // As BuildOptions::spare_rows.
  [[nodiscard]] int64_t spare_rows() const { return spare_rows_; }
  // The most rows of a step that reads a prompt.
  [[nodiscard]] int64_t chunk() const { return chunk_; }
  // The devices and, if several share the layers, the device of each layer.
  [[nodiscard]] const PlacementPolicy& placement() const { return placement_; }
  // Which settings the device decided; limits() and the policy of devices() have the results.
  [[nodiscard]] const AutoChoices& auto_choices() const { return auto_choices_; }
  // From opening the file until the session could run.
  [[nodiscard]] double load_seconds() const { return load_seconds_; }

 private:
  ModelSession(LoadedModel model, HostHooks hooks)
      : model_(std::move(model)), hooks_(std::move(hooks)) {}
  Status Start(const ModelSessionOptions& options, Notices& notices);
  // Bytes of the main device that the towers take in addition to the session, for pictures of the
  // usual number of tokens.
  [[nodiscard]] Result<uint64_t> TowerBytes() const;
  Status ChooseSettings(const ModelSessionOptions& options);
  // Sets the slots of `options` and the tokens of each. Returns whether they are others now.
  Result<bool> ChooseSlots(const SlotRoom& room, ModelSessionOptions& options);
  [[nodiscard]] Status CheckGraphs(const ModelSessionOptions& options) const;
  // Whether the devices run the steps of the model's assistant, if it has one. Error
  // placement.refused.
  [[nodiscard]] Status CheckDrafts() const;
  // The most rows of a step with soft tokens; 0 for a session that reads none.
  [[nodiscard]] int64_t MediaRows(const ModelSessionOptions& options) const;
  // One lane for each device that has layers, in a batch on several of them.
  [[nodiscard]] size_t LanesFor(const ModelSessionOptions& options) const;
  Status BuildSession(const ModelSessionOptions& options, const DeviceSettings& settings);

  LoadedModel model_;
  HostHooks hooks_;
  SamplerSettings sampler_;
  EntropyBoundSettings diffusion_;
  AutoChoices auto_choices_;
  PlacementPolicy placement_;
  StepLimits limits_;
  int64_t slots_ = 1;
  int64_t spare_rows_ = 0;
  int64_t chunk_ = 0;
  double load_seconds_ = 0;
  // Declared in the order they depend on each other, destroyed in reverse.
  std::unique_ptr<Registry> registry_;
  BackendDevices devices_;
  std::shared_ptr<AllocatedBytes> allocated_;
  std::unique_ptr<GgufWeights> weight_source_;
  std::unique_ptr<Session> session_;
  ProgramGraphs graphs_;
  std::unique_ptr<MediaEncoder> media_;
};

// A seed that was drawn from the system's random numbers. 63 bits: what --seed accepts, so that a
// printed seed can be given back.
uint64_t DrawSeed();

}  // namespace rullama
