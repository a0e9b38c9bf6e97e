// An Engine turns a configuration into a session that can run. It holds the steps that all commands
// with a model share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/backend_setup.h"
#include "cli/console.h"
#include "cli/model_file.h"
#include "cli/options.h"
#include "core/runtime/session.h"
#include "engine/model_program.h"
#include "models/gemma4/graph/config.h"
#include "models/gemma4/graph/model.h"
#include "models/gemma4/graph/weights.h"
#include "samplers/settings.h"

namespace rullama::cli {

// Tokens per sequence unless the user asks for more: the whole context of a large model would need
// gigabytes of cache that most conversations never touch.
inline constexpr int64_t kDefaultCapacity = 8192;

// A model that was opened and checked, before any device is touched.
struct LoadedModel {
  LoadedConfig loaded;
  ModelFile file;
  Gemma4Config gemma;
  Gemma4Weights weights;
  std::shared_ptr<const Tokenizer> tokenizer;

  [[nodiscard]] const Config& config() const { return loaded.config.values(); }
  // Tokens per slot: as configured, or the default within the model's limit.
  [[nodiscard]] int64_t capacity() const;
  // The configured limits, but never more rows than the capacity.
  [[nodiscard]] StepLimits step_limits() const;
};

// Warnings (unusual tensors, replaced settings) go to `console`. Errors: config.*, gguf.*, store.*,
// model.*, tokenizer.*, io.*.
Result<LoadedModel> LoadModel(const ConfigFlags& flags, Console& console);

// Number format of the KV cache: as configured; `auto` is f16, for the reference backend f32.
DType KvDtypeFor(const Config& config, const std::string& backend);

struct EngineOptions {
  GraphOutputs outputs = GraphOutputs::kText;
  int64_t max_rows = 0;  // of a step; 0: as configured
};

// Owns everything a session needs. Thread safety: one thread at a time.
class Engine {
 public:
  // Errors of all the parts: plugins, devices, graph, memory.
  static Result<std::unique_ptr<Engine>> Open(const ConfigFlags& flags,
                                              const EngineOptions& options, Console& console);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] const LoadedModel& model() const { return model_; }
  [[nodiscard]] const Config& config() const { return model_.config(); }
  [[nodiscard]] const Tokenizer& tokenizer() const { return *model_.tokenizer; }
  [[nodiscard]] const BackendDevices& devices() const { return devices_; }
  [[nodiscard]] Session& session() { return *session_; }
  // The settings of the sampler, with the seed in use.
  [[nodiscard]] const SamplerSettings& sampler() const { return sampler_; }
  // The settings for a model that denoises.
  [[nodiscard]] const EntropyBoundSettings& diffusion() const { return diffusion_; }
  [[nodiscard]] int64_t capacity() const { return model_.capacity(); }
  [[nodiscard]] const StepLimits& limits() const { return limits_; }
  [[nodiscard]] double load_seconds() const { return load_seconds_; }

  // Prints the notes of -v: device, sampling chain, seed, placement.
  void Describe(Console& console) const;

 private:
  explicit Engine(LoadedModel model) : model_(std::move(model)) {}
  Status OpenSession(const ConfigFlags& flags, const EngineOptions& options, Console& console);

  LoadedModel model_;
  SamplerSettings sampler_;
  EntropyBoundSettings diffusion_;
  StepLimits limits_;
  double load_seconds_ = 0;
  // Declared in the order they depend on each other, destroyed in reverse.
  std::unique_ptr<Registry> registry_;
  BackendDevices devices_;
  std::unique_ptr<GgufWeights> weight_source_;
  std::unique_ptr<Session> session_;
};

}  // namespace rullama::cli
