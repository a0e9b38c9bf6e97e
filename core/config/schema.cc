#include "core/config/schema.h"

#include <fmt/format.h>

#include <limits>

#include "core/config/device_codecs.h"
#include "core/config/sampler_ranges.h"

namespace rullama {
namespace {

constexpr int64_t kMaxPrefillChunk = 65536;  // rows of one step; activations grow with it
constexpr int64_t kMaxSlots = 256;
constexpr int64_t kMaxDraft = 16;

BlockSpec ModelSchema() {
  return BlockBuilder<&Config::model>("model", "Which model to run.")
      .Field("path", &ModelConfig::path, ModelCodec{},
             "A GGUF file, or the name of a model that Ollama has downloaded. A relative file is "
             "relative to the folder of this YAML file.",
             "must come from the command line")
      .Field("adapters", &ModelConfig::adapters, ListCodec<AdapterCodec>{},
             "Low-rank adapters (LoRA) of the model, which add up: files of llama.cpp, folders of "
             "PEFT or MLX. Relative ones are relative to the folder of this YAML file.",
             "those that Ollama's store has for the model")
      .Field("mmproj", &ModelConfig::mmproj, FileCodec{},
             "The file of the model's towers, for pictures and sound. A relative file is relative "
             "to the folder of this YAML file.",
             "the towers that Ollama's store or the model file has")
      .Build();
}

ChoiceCodec<KvDtype> CacheTypeCodec() {
  return {{{"auto", KvDtype::kAuto},
           {"f32", KvDtype::kF32},
           {"f16", KvDtype::kF16},
           {"bf16", KvDtype::kBF16},
           {"q8_0", KvDtype::kQ8_0},
           {"q4_0", KvDtype::kQ4_0}}};
}

BlockSpec ContextSchema() {
  return BlockBuilder<&Config::context>("context", "How much text is kept in memory.")
      .Field(
          "capacity", &ContextConfig::capacity, IntegerCodec{0, kMaxConfiguredTokens},
          "Tokens of prompt and answer together that fit; 0 is the model's context length. The KV "
          "cache grows with it.",
          "the model's context length, at most 8192")
      .Field(
          "prefill_chunk", &ContextConfig::prefill_chunk,
          AutoCodec<IntegerCodec>{{1, kMaxPrefillChunk}},
          "Tokens of the prompt processed in one step. `auto` is 512 on a processor; on a GPU it "
          "is 2048, or the largest power of two from 512 on whose step leaves a fifth of the "
          "device's memory free.")
      .Field("kv_dtype", &ContextConfig::kv_dtype, CacheTypeCodec(),
             "Number format of the KV cache; `auto` lets the backend choose. `q8_0` takes half the "
             "memory of `f16` and loses next to nothing, `q4_0` a quarter and loses a little.")
      .Field("v_dtype", &ContextConfig::v_dtype, CacheTypeCodec(),
             "Number format of the values in it, if not that of the keys; `auto`: `kv_dtype`.")
      .Field("slots", &ContextConfig::slots, AutoCodec<IntegerCodec>{{1, kMaxSlots}},
             "Sequences that can run at the same time, each with its own capacity. `auto` is one, "
             "but in `rullama serve` it is 4, or more where a GPU has the memory "
             "([server.md](server.md#limits)).")
      .Build();
}

BlockSpec BackendSchema() {
  return BlockBuilder<&Config::backend>("backend",
                                        "What computes. `rullama backends` lists the choices.")
      .Field("name", &BackendConfig::name, NameCodec{},
             "Name of a backend plugin (`cpu`, `vulkan`, ...), or `auto`.")
      .Field(
          "device", &BackendConfig::device, TextCodec{},
          "Index of the backend's device, or a part of its name. Without it, the first that is not "
          "software.")
      .Field("devices", &BackendConfig::devices, DeviceListCodec{},
             "Devices that share the layers of the model ([devices.md](devices.md)), in their "
             "order, instead of `name` and `device`: `[vulkan:0, vulkan:1, cpu]`. Each is a "
             "backend, with a colon and a `device` of it or without. In place of a name, `{device: "
             "cpu, options: {threads: 4}}` gives a device options of its own.")
      .MapField(
          "options", &BackendConfig::options, OptionNameCodec{}, TextCodec{},
          "Settings of the plugin itself, passed on as text, for example `threads: 2`. Of several "
          "backends in `devices`, the first gets them; options of a device go before them.")
      .Field(
          "warm_up", &BackendConfig::warm_up,
          ChoiceCodec<WarmUp>{
              {{"off", WarmUp::kOff}, {"dispatch", WarmUp::kDispatch}, {"all", WarmUp::kAll}}},
          "What is compiled when a model is opened. `off`: nothing; each size of step is compiled "
          "when it is first needed. `dispatch`: what steps of all sizes need, so that no request "
          "waits for a compiler. `all`: also the kernels that make them faster, which `dispatch` "
          "leaves to the background ([server.md](server.md)).",
          "dispatch in `rullama serve`, else off")
      .Build();
}

BlockSpec PluginsSchema() {
  return BlockBuilder<&Config::plugins>("plugins", "Where backend plugins are looked for.")
      .Field("paths", &PluginsConfig::paths, ListCodec<FileCodec>{},
             "Plugin files or directories of plugins, before the standard places. Relative ones "
             "are relative to the folder of this YAML file.")
      .Build();
}

BlockSpec PlacementSchema() {
  return BlockBuilder<&Config::placement>(
             "placement", "What may run on the host when the backend does not take it.")
      .Field("fallback", &PlacementConfig::fallback,
             ChoiceCodec<FallbackPolicy>{{{"deny", FallbackPolicy::kDeny},
                                          {"list", FallbackPolicy::kList},
                                          {"allow", FallbackPolicy::kAllow}}},
             "`deny`: an op the backend refuses is an error; `list`: only `host_ops` may run on "
             "the host; `allow`: any op may.")
      .Field("host_ops", &PlacementConfig::host_ops, ListCodec<NameCodec>{},
             "Ops that may run on the host under `list`.")
      .Field(
          "host_weights", &PlacementConfig::host_weights, AutoCodec<ListCodec<NameCodec>>{},
          "Weights whose name contains one of these texts stay in host memory. `auto` is [] on a "
          "GPU that holds the whole model with a fifth of its memory to spare, and "
          "[per_layer_token_embd] anywhere else.")
      .Field("host_expert_layers", &PlacementConfig::host_expert_layers,
             IntegerCodec{Integers(0, INT32_MAX)},
             "Layers, from the first, whose experts run on the host and stay in its memory, "
             "whatever `fallback` says. For a mixture of experts that is larger than the memory of "
             "the GPU.")
      .Field("split", &PlacementConfig::split, LayerSplitCodec{},
             "How many layers each of `backend.devices` gets ([devices.md](devices.md)): whole "
             "numbers that add up to the layers of the model, or shares such as [0.7, 0.3]. `auto` "
             "fills GPUs in proportion to their free memory and gives a processor what they have "
             "no room for.")
      .Build();
}

BlockSpec DiffusionSchema() {
  constexpr std::string_view kFromModel = "the model file's";
  return BlockBuilder<&Config::sampler, &SamplerConfig::diffusion>(
             "sampler.diffusion",
             "How a DiffusionGemma denoises a canvas. It uses nothing else of the sampler but the "
             "seed.")
      .Field("max_steps", &DiffusionConfig::max_steps, IntegerCodec{sampler_ranges::kMaxSteps},
             "Most denoising steps of a canvas.", kFromModel)
      .Field("t_min", &DiffusionConfig::t_min, RealCodec{sampler_ranges::kCanvasTemperature},
             "The temperature that the steps fall towards.", kFromModel)
      .Field("t_max", &DiffusionConfig::t_max, RealCodec{sampler_ranges::kCanvasTemperature},
             "The temperature of the first step; at least `t_min`.", kFromModel)
      .Field(
          "entropy_bound", &DiffusionConfig::entropy_bound, RealCodec{sampler_ranges::kEntropy},
          "In each step the tokens of lowest entropy are kept, as long as the sum of those before "
          "is at most this many nats.",
          kFromModel)
      .Field("stability_threshold", &DiffusionConfig::stability_threshold,
             IntegerCodec{sampler_ranges::kStabilityThreshold},
             "A canvas may be finished after this many steps without a change of its best tokens.",
             kFromModel)
      .Field("confidence_threshold", &DiffusionConfig::confidence_threshold,
             RealCodec{sampler_ranges::kEntropy},
             "A stable canvas is finished below this mean entropy, in nats.", kFromModel)
      .Field("random", &DiffusionConfig::random,
             ChoiceCodec<DiffusionRandom>{{{"philox", DiffusionRandom::kPhilox},
                                           {"xorshift64", DiffusionRandom::kXorShift64}}},
             "Where random numbers come from: `philox` depends on seed and position alone, "
             "`xorshift64` is the sequence that published runs were recorded with.")
      .Build();
}

IntegerCodec CodecOf(const IntegerRange& range) { return IntegerCodec{range}; }
RealCodec CodecOf(const RealRange& range) { return RealCodec{range}; }

BlockSpec SamplerSchema() {
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  .Field(#name, &SamplerConfig::name, CodecOf(range), doc, fmt::format("{}", Type{value}))
  return BlockBuilder<&Config::sampler>(
             "sampler",
             "How the next token is drawn. A setting that is not given comes from the model file "
             "(`general.sampling.*`), then from the default named here.")
#include "core/config/sampler_settings.def"
      .Field("seed", &SamplerConfig::seed, IntegerCodec{-1, std::numeric_limits<int64_t>::max()},
             "The same seed gives the same text; -1 draws one anew for each run.",
             "drawn anew for each run")
      .Field("greedy", &SamplerConfig::greedy, BoolCodec{},
             "Always take the most likely token, whatever else is set.", "false")
      .MapField("logit_bias", &SamplerConfig::logit_bias, IntegerCodec{0, kMaxVocabulary - 1},
                RealCodec{sampler_ranges::kLogitBias},
                "Token id and the number to add to its logit.")
      .Nested(DiffusionSchema())
      .Build();
}

BlockSpec GenerationSchema() {
  return BlockBuilder<&Config::generation>("generation", "What the model writes and when it stops.")
      .Field("max_tokens", &GenerationConfig::max_tokens, IntegerCodec{1, kMaxConfiguredTokens},
             "Stop after this many tokens.", "until the turn ends or the context is full")
      .Field("stop", &GenerationConfig::stop, ListCodec<TextCodec>{{.allow_empty = false}},
             "Stop before any of these texts.")
      .Field("thinking", &GenerationConfig::thinking, BoolCodec{},
             "Let the model think before it answers.", "false")
      .Field("system", &GenerationConfig::system, TextCodec{},
             "The system prompt of a conversation.", "none")
      .Field("raw", &GenerationConfig::raw, BoolCodec{},
             "Continue the given text as it is, without the chat template.")
      .Field("image_tokens", &GenerationConfig::image_tokens,
             AutoCodec<ChoiceCodec<int64_t>>{
                 {{{"70", 70}, {"140", 140}, {"280", 280}, {"560", 560}, {"1120", 1120}}}},
             "The most soft tokens of a picture. More show finer detail, such as small print, and "
             "take longer. `auto`: as many as keep all pixels, at most 280; for embedding models "
             "always 280. No effect, and a "
             "warning, with Gemma 3, whose pictures all have 256.")
      .Build();
}

BlockSpec DraftsSchema() {
  return BlockBuilder<&Config::drafts>(
             "drafts",
             "Tokens that are guessed in advance and checked in one step. They change the speed of "
             "an answer, not its text (docs/drafts.md).")
      .Field("lookup", &DraftsConfig::lookup, BoolCodec{},
             "Guess that what followed the last tokens where they stood before follows again.")
      .Field("model", &DraftsConfig::model, ModelCodec{},
             "A smaller model with the same vocabulary that guesses, or the model's own drafter; a "
             "file or a name as in `model.path`. With `lookup` it guesses where the lookup finds "
             "nothing.",
             "none")
      .Field("mtp", &DraftsConfig::mtp, AutoCodec<BoolCodec>{},
             "Guess with the drafter that Gemma 4 models have (multi-token prediction): that of "
             "`model`, of Ollama's store, or a file `mtp-*.gguf` next to the model. `auto`: as "
             "many tokens as pay; on `cpu` with any drafter that is found, on other backends only "
             "with one that `model` names. `true`: on every backend, also where it does not pay.")
      .Field("max", &DraftsConfig::max, IntegerCodec{1, kMaxDraft},
             "Most tokens of a guess. How many of the last ones were right decides on fewer.")
      .Field("min", &DraftsConfig::min, IntegerCodec{0, kMaxDraft},
             "A guess of fewer tokens is not checked; at most `max`.")
      .Field("min_probability", &DraftsConfig::min_probability, RealCodec{0, 1},
             "A guess of the model's own drafter ends before a token that it takes to be less "
             "likely than that.")
      .Build();
}

BlockSpec DiffSchema() {
  return BlockBuilder<&Config::diff>("diff", "How far two backends may be apart (`rullama diff`).")
      .Field("nmse", &DiffConfig::nmse, RealCodec{0, 1},
             "Of each compared value: squared differences over squares of the baseline.")
      .Field("kl", &DiffConfig::kl, RealCodec{0, 100},
             "Divergence of the predicted distributions in nats, mean over positions.")
      .Field("top1", &DiffConfig::top1, RealCodec{0, 1},
             "Least part of the positions whose likeliest token is the same.")
      .Build();
}

const FieldSpec* FindFieldIn(const BlockSpec& block, std::string_view path) {
  for (const FieldSpec& field : block.fields) {
    if (field.path == path) return &field;
  }
  for (const BlockSpec& child : block.blocks) {
    if (const FieldSpec* field = FindFieldIn(child, path)) return field;
  }
  return nullptr;
}

void CollectPaths(const BlockSpec& block, std::vector<std::string>& paths) {
  for (const FieldSpec& field : block.fields) paths.push_back(field.path);
  for (const BlockSpec& child : block.blocks) CollectPaths(child, paths);
}

}  // namespace

const BlockSpec& ConfigSchema() {
  static const BlockSpec kSchema = {
      .key = "",
      .path = "",
      .doc = "",
      .fields = {},
      .blocks = {ModelSchema(), ContextSchema(), BackendSchema(), PluginsSchema(),
                 PlacementSchema(), SamplerSchema(), GenerationSchema(), DraftsSchema(),
                 DiffSchema(), ServerSchema(), TrainingSchema(), ArchitectureSchema()}};
  return kSchema;
}

const FieldSpec* FindField(std::string_view path) { return FindFieldIn(ConfigSchema(), path); }

std::vector<std::string> FieldPaths() {
  std::vector<std::string> paths;
  CollectPaths(ConfigSchema(), paths);
  return paths;
}

}  // namespace rullama
