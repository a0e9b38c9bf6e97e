#include "cli/engine.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "cli/signals.h"

namespace rullama::cli {
namespace {

uint64_t DrawSeed() {
  std::random_device device;
  const uint64_t high = device();
  // 63 bits: what --seed accepts, so that a printed seed can be given back.
  return ((high << 32) | device()) & static_cast<uint64_t>(INT64_MAX);
}

std::string DescribeSampler(const EntropyBoundSettings& s) {
  return fmt::format(
      "denoising, at most {} steps, temperature {} to {}, entropy bound {}, finished after {} "
      "stable "
      "steps below {}",
      s.max_steps, s.t_max, s.t_min, s.entropy_bound, s.stability_threshold,
      s.confidence_threshold);
}

std::string_view NameOfSource(Origin origin) {
  if (origin == Origin::kModelFile) return "the model in Ollama's store";
  return origin == Origin::kFlag ? "--system" : "the configuration";
}

// Settings of the command line that this kind of model does not have. In a file they may be meant
// for another model.
void WarnOfIdleSettings(const ConfigFlags& flags, bool denoises, Console& console) {
  for (const ConfigFlags::Setting& setting : flags.settings) {
    if (!setting.path.starts_with("sampler.") || setting.path == "sampler.seed") continue;
    const bool denoising = setting.path.starts_with("sampler.diffusion.");
    if (denoising == denoises) continue;
    console.Warn(fmt::format(
        "{} has no effect: this model {}", setting.flag,
        denoises ? "denoises, with settings of its own (rullama run --help)" : "does not denoise"));
  }
}

}  // namespace

int64_t LoadedModel::capacity() const {
  const int64_t chosen =
      config().context.capacity.value_or(std::min(gemma.context_length, kDefaultCapacity));
  return chosen == 0 ? gemma.context_length : chosen;
}

StepLimits LoadedModel::step_limits() const {
  return {.max_rows = std::min(config().context.prefill_chunk, capacity())};
}

Result<LoadedModel> LoadModel(const ConfigFlags& flags, Console& console) {
  if (flags.quiet && flags.verbose) {
    return MakeError(ErrorKind::kUsage, "usage.option", "-q and -v exclude each other; give one");
  }
  // A flag counts more than RULLAMA_LOG.
  if (flags.quiet) {
    console.set_verbosity(std::min(console.verbosity(), Verbosity::kWarnings));
  }
  if (flags.verbose) console.set_verbosity(Verbosity::kNotes);
  LoadedModel model;
  RL_ASSIGN_OR_RETURN(model.loaded, LoadConfig(flags));
  RL_ASSIGN_OR_RETURN(model.file, OpenModelFile(model.config().model.path));
  RL_RETURN_IF_ERROR(ApplyOllamaParams(model.file, model.loaded.config));
  for (const std::string& notice : model.loaded.config.notices()) console.Note(notice);
  const GgufFile& file = *model.file.file;
  const auto in_file = [&model](Error error) {
    return tl::unexpected(std::move(error).WithContext(fmt::format("model '{}'", model.file.name)));
  };
  auto gemma = Gemma4Config::FromFile(file);
  if (!gemma) return in_file(std::move(gemma).error());
  model.gemma = *std::move(gemma);
  auto weights = Gemma4Weights::FromFile(model.gemma, file);
  if (!weights) return in_file(std::move(weights).error());
  model.weights = *std::move(weights);
  for (const std::string& warning : model.weights.warnings()) console.Warn(warning);
  WarnOfIdleSettings(flags, model.gemma.denoises(), console);
  RL_RETURN_IF_ERROR(model.gemma.CheckAgainst(model.config().architecture));
  auto tokenizer = MakeTokenizer(file);
  if (!tokenizer) return in_file(std::move(tokenizer).error());
  model.tokenizer = *std::move(tokenizer);
  return model;
}

DType KvDtypeFor(const Config& config, const std::string& backend) {
  switch (config.context.kv_dtype) {
    case KvDtype::kF16:
      return DType::kF16;
    case KvDtype::kF32:
      return DType::kF32;
    case KvDtype::kAuto:
      break;
  }
  return backend == "reference" ? DType::kF32 : DType::kF16;
}

Result<std::unique_ptr<Engine>> Engine::Open(const ConfigFlags& flags, const EngineOptions& options,
                                             Console& console) {
  const auto start = std::chrono::steady_clock::now();
  RL_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(flags, console));
  std::unique_ptr<Engine> engine(new Engine(std::move(model)));
  RL_RETURN_IF_ERROR(engine->OpenSession(flags, options, console));
  engine->load_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return engine;
}

Status Engine::OpenSession(const ConfigFlags& flags, const EngineOptions& options,
                           Console& console) {
  RL_ASSIGN_OR_RETURN(sampler_, ResolveSettings(config().sampler, *model_.file.file));
  if (config().sampler.seed.value_or(-1) < 0) sampler_.seed = DrawSeed();
  RL_RETURN_IF_ERROR(sampler_.Validate(model_.gemma.vocabulary));
  diffusion_ = ResolveSettings(config().sampler.diffusion, RecommendedBy(model_.gemma.canvas));
  if (model_.gemma.denoises()) RL_RETURN_IF_ERROR(diffusion_.Validate());
  registry_ = MakeRegistry(config(), model_.loaded.environment, flags.plugins);
  RL_ASSIGN_OR_RETURN(devices_, OpenDevices(*registry_, config(), console));
  limits_ = model_.step_limits();
  if (options.max_rows > 0) limits_.max_rows = std::min(options.max_rows, capacity());
  RL_ASSIGN_OR_RETURN(ModelProgram program,
                      BuildModelProgram(model_.gemma, model_.weights,
                                        {.outputs = options.outputs,
                                         .sampler = &sampler_,
                                         .diffusion = &diffusion_,
                                         .capacity = capacity(),
                                         .kv_dtype = KvDtypeFor(config(), devices_.backend),
                                         .limits = limits_}));
  weight_source_ = std::make_unique<GgufWeights>(*model_.file.file);
  for (SyntheticConstant& constant : program.constants) {
    weight_source_->AddConstant(std::move(constant.name), constant.type, std::move(constant.bytes));
  }
  // The check comes before gigabytes are read through the mapping.
  RL_RETURN_IF_ERROR(model_.file.file->CheckUnchanged());
  SessionOptions session;
  session.devices = devices_.Borrow();
  session.policy = devices_.policy;
  session.limits = limits_;
  RL_ASSIGN_OR_RETURN(session_,
                      Session::Create(std::move(program.graphs), *weight_source_, session));
  for (const auto& [name, bytes] : program.inputs) {
    RL_RETURN_IF_ERROR(session_->SetInput(name, bytes));
  }
  return OkStatus();
}

Engine::~Engine() {
  session_.reset();
  devices_.devices.clear();
  if (registry_) registry_->Shutdown();
  WatchMapping({});
}

void Engine::Describe(Console& console) const {
  const DeviceDescription& device = devices_.main().description();
  console.Note(fmt::format("model: {} layers, width {}, vocabulary {}, context {}",
                           model_.gemma.layer_count(), model_.gemma.width, model_.gemma.vocabulary,
                           capacity()));
  console.Note(fmt::format("backend: {} on {} ({})", devices_.backend, device.name, device.driver));
  console.Note("sampling: " +
               (model_.gemma.denoises() ? DescribeSampler(diffusion_) : sampler_.Describe()));
  console.Note(fmt::format("seed: {}", sampler_.seed));
  if (const auto& system = config().generation.system; system && !config().generation.raw) {
    console.Note(fmt::format("system prompt: {} bytes, from {}", system->size(),
                             NameOfSource(model_.loaded.config.origin("generation.system"))));
  }
}

}  // namespace rullama::cli
