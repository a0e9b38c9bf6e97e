// The configuration of one `rullama` process: plain data, no behaviour.
//
// A std::optional without a value means "the file did not say": the model file's own metadata
// applies (GGUF `general.sampling.*`), then the default named next to the member. The table that
// binds members to YAML keys, ranges and documentation is in schema.cc.
//
// Thread safety: value types, no shared state.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/fallback_policy.h"
#include "core/base/keep_alive.h"

namespace rullama {

// A low-rank adapter (LoRA) and the factor of its effect.
struct AdapterSetting {
  std::string path;  // a file, or a folder of PEFT or MLX
  double scale = 1;
  bool operator==(const AdapterSetting&) const = default;
};

struct ModelConfig {
  // A file (LooksLikeModelFile) or an Ollama name such as gemma4:e2b. A relative file that came
  // from YAML has been resolved against the folder of the YAML file.
  std::optional<std::string> path;
  std::vector<AdapterSetting> adapters;  // they add up
  std::optional<std::string> mmproj;     // a file of towers; without a value: the model's own
};

enum class KvDtype { kAuto, kF32, kF16, kBF16, kQ8_0, kQ4_0 };  // NOLINT: names of types

struct ContextConfig {
  std::optional<int64_t> capacity;       // tokens per slot; min(model's context length, 8192)
  std::optional<int64_t> prefill_chunk;  // tokens per prefill step; without a value: by device
  KvDtype kv_dtype = KvDtype::kAuto;
  KvDtype v_dtype = KvDtype::kAuto;  // of the values; kAuto: kv_dtype
  std::optional<int64_t> slots;      // sequences at a time; a server's depend on its device, else 1
};

// A device of a list.
struct DeviceSetting {
  std::string name;                                 // "BACKEND" or "BACKEND:DEVICE" (device_name.h)
  std::map<std::string, std::string> options = {};  // of this one; they go before the common ones

  bool operator==(const DeviceSetting&) const = default;
};

// Which plans are compiled before the first request.
enum class WarmUp {
  kOff,
  kDispatch,  // all that steps need
  kAll,       // also what makes later steps faster
};

struct BackendConfig {
  std::string name = "cpu";
  std::string device;  // index, or part of the name; empty: the first that is not software
  // Devices that share the layers of the model; empty: the one of `name` and `device`.
  std::vector<DeviceSetting> devices;
  std::map<std::string, std::string> options;  // handed to the plugin as they are
  std::optional<WarmUp> warm_up;               // kDispatch for a server, else kOff
};

struct PluginsConfig {
  std::vector<std::string> paths;  // files or directories, in search order
};

// The layers of a model that each device of a list gets: numbers of layers, or shares of them. With
// neither, the room of the devices decides.
struct LayerSplit {
  std::vector<int64_t> layers;
  std::vector<double> shares;
  bool operator==(const LayerSplit&) const = default;
};

struct PlacementConfig {
  FallbackPolicy fallback = FallbackPolicy::kList;
  std::vector<std::string> host_ops = {"gather_rows"};
  // Name patterns. Without a value the device decides about the per-layer embedding table.
  std::optional<std::vector<std::string>> host_weights;
  int64_t host_expert_layers = 0;  // whose experts run on the host, counted from the first
  LayerSplit split;                // of the layers among backend.devices
};

enum class DiffusionRandom { kPhilox, kXorShift64 };

// The denoising of a canvas (DiffusionGemma); members without a value come from the model file.
struct DiffusionConfig {
  std::optional<int64_t> max_steps;
  std::optional<double> t_min;
  std::optional<double> t_max;
  std::optional<double> entropy_bound;
  std::optional<int64_t> stability_threshold;
  std::optional<double> confidence_threshold;
  DiffusionRandom random = DiffusionRandom::kPhilox;
};

// Members without a value come from the model file, then from Gemma 4's published values
// (temperature 1.0, top_k 64, top_p 0.95); all other steps are off.
struct SamplerConfig {
#define RL_SAMPLER_SETTING(Type, name, value, off, range, key, flag, help, doc) \
  std::optional<Type> name;
#include "core/config/sampler_settings.def"
  std::optional<int64_t> seed;
  std::optional<bool> greedy;
  std::map<int64_t, double> logit_bias;  // token id -> added to its logit
  DiffusionConfig diffusion;
};

struct GenerationConfig {
  std::optional<int64_t> max_tokens;  // until the end of the turn or of the context
  std::vector<std::string> stop;
  std::optional<bool> thinking;
  std::optional<std::string> system;
  bool raw = false;                     // continue the text; no chat template
  std::optional<int64_t> image_tokens;  // of a picture, if the model has several
};

// Tokens that are guessed in advance and checked in one step (docs/drafts.md).
struct DraftsConfig {
  std::optional<std::string> model;  // as ModelConfig::path
  bool lookup = false;
  // Drafts by the model's own assistant: where it lies with the model and as long as it pays;
  // always; never.
  std::optional<bool> mtp;
  int64_t max = 7;  // tokens of a draft
  int64_t min = 0;
  double min_probability = 0;  // of its tokens, to the assistant
};

// One number for both kinds of attention layer, or one for each.
struct SlidingGlobal {
  int64_t sliding = 0;
  int64_t global = 0;
  bool operator==(const SlidingGlobal&) const = default;
};

// One number for layers that own their KV cache and one for those that share another layer's.
struct OwnedShared {
  int64_t owned = 0;
  int64_t shared = 0;
  bool operator==(const OwnedShared&) const = default;
};

struct ExpertsConfig {
  std::optional<int64_t> count;  // 0 = none
  std::optional<int64_t> used;   // by each token
  std::optional<int64_t> ffn;    // width of each
};

struct RopeConfig {
  std::optional<double> base_global;             // 1e6
  std::optional<double> base_sliding;            // 1e4
  std::optional<double> rotary_fraction_global;  // 0.25: part of a global head's pairs that rotates
};

// The tower for pictures. Without `layers` there is none.
struct VisionArchitecture {
  std::optional<int64_t> layers = {};     // 0: the pixels of a soft token are only projected
  std::optional<int64_t> width = {};      // of the residual stream
  std::optional<int64_t> heads = {};      // attention heads
  std::optional<int64_t> ffn = {};        // width of the feed-forward block
  std::optional<int64_t> patch = {};      // side of a patch in pixels, 16
  std::optional<int64_t> pool = {};       // patches on each side of a soft token's square, 3
  std::optional<int64_t> positions = {};  // columns and rows of the position tables, 10240
  std::optional<bool> standardize = {};   // the pooled values are shifted and scaled; false
  std::optional<bool> clipped = {};       // linear layers have bounds; false
};

// Output channels of two convolutions in a row.
struct FirstSecond {
  int64_t first = 0;
  int64_t second = 0;
  bool operator==(const FirstSecond&) const = default;
};

// The tower for sound. Without `layers` there is none.
struct AudioArchitecture {
  std::optional<int64_t> layers = {};  // 0: the samples of a soft token are only projected
  std::optional<int64_t> width = {};   // of the residual stream
  std::optional<int64_t> heads = {};   // attention heads
  std::optional<int64_t> ffn = {};     // width of the feed-forward blocks
  std::optional<int64_t> output = {};  // width before the projector, 1536
  // Channels of the two convolutions that shorten the sound; 128 and 32.
  std::optional<FirstSecond> conv_channels = {};
  std::optional<int64_t> kernel = {};  // rows that the convolution of a layer sees, 5
  std::optional<bool> clipped = {};    // linear layers have bounds; false
};

// Shapes of the network. `rullama synth` builds a model from them; a loaded file is checked against
// those that are given, except for the towers.
struct ArchitectureConfig {
  std::optional<std::string> family;  // general.architecture
  std::optional<int64_t> layers;
  std::optional<int64_t> width;  // of the residual stream
  std::optional<int64_t> heads;  // query heads
  std::optional<SlidingGlobal> kv_heads;
  std::optional<SlidingGlobal> head_dim;
  std::optional<OwnedShared> ffn;
  std::optional<int64_t> sliding_window;  // tokens
  std::optional<int64_t> pattern;  // period: pattern - 1 sliding layers, then a global one; the
                                   // last layer of some families is global
  std::optional<int64_t> shared_kv_layers;  // trailing layers that read an earlier layer's cache
  std::optional<int64_t> ple_dim;           // per-layer embedding width, 0 = none
  std::optional<bool> k_eq_v;               // global layers use K as V
  std::optional<int64_t> vocabulary;
  std::optional<int64_t> context_length;
  std::optional<int64_t> canvas_length;  // tokens denoised together (DiffusionGemma), 0 = none
  ExpertsConfig experts;
  RopeConfig rope;
  VisionArchitecture vision;
  AudioArchitecture audio;
  std::optional<double> rms_eps;        // 1e-6
  std::optional<double> final_softcap;  // 30; 0 = none
};

// The thresholds above which `rullama diff` reports a difference.
struct DiffConfig {
  double nmse = 1e-4;  // of a value: squared differences over squares
  double kl = 1e-3;    // nats, mean over positions
  double top1 = 0.95;  // least part of the positions with the same likeliest token
};

// A model among those that the server answers with.
struct ServedModelSetting {
  std::string path = {};                     // as model.path
  std::string name = {};                     // for clients; empty: from the path
  std::optional<KeepAlive> keep_alive = {};  // without a value: that of the server
  std::vector<AdapterSetting> adapters = {};
  std::optional<std::string> mmproj = {};            // as model.mmproj
  std::map<std::string, std::string> settings = {};  // of this model alone: "context.slots" -> "2"
  bool operator==(const ServedModelSetting&) const = default;
};

// Another name for a model that the server answers with.
struct ModelAlias {
  std::string name = {};   // with a '*' at its end: all names that begin so
  std::string model = {};  // the model's own name
  bool operator==(const ModelAlias&) const = default;
};

// `rullama serve`. Times are in seconds.
struct ServerConfig {
  std::vector<ServedModelSetting> models;  // empty: model.path alone
  std::vector<ModelAlias> aliases;         // the first that fits counts
  // Without a value: one model stays for ever, of several each stays for 5 minutes.
  std::optional<KeepAlive> keep_alive;
  int64_t max_loaded_models = 1;
  std::string host = "127.0.0.1";
  int64_t port = 11435;               // 0: any free one
  std::vector<std::string> api_keys;  // files of keys
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  int64_t max_queue = 1024;
  std::optional<int64_t> max_queue_per_key;  // half of max_queue, rounded up; without keys all
  int64_t max_gap = 250;                     // milliseconds
  int64_t queue_timeout = 300;
  int64_t request_timeout = 600;
  int64_t header_timeout = 10;
  int64_t body_timeout = 60;
  int64_t idle_timeout = 75;
  int64_t write_timeout = 60;
  int64_t drain = 30;
  int64_t prefix_cache_mib = 1024;
  int64_t media_cache_mib = 64;
  int64_t max_connections = 2048;
  int64_t max_header_bytes = 16'384;
  int64_t max_body_bytes = int64_t{64} << 20;
  int64_t max_body_memory_mib = 256;
  bool page = true;
  std::optional<std::string>
      web_path;  // none: the page for the browser's own models is not offered
  bool metrics = true;
  bool embeddings = true;
  std::optional<std::string> prefix_cache_path;  // none: prompts are kept in memory alone
  int64_t prefix_cache_disk_mib = 8192;
  bool slots_endpoint = true;
  std::optional<std::string> slot_save_path;  // none: slots are not saved
  int64_t slot_save_mib = 16'384;
  bool allow_pull = false;
};

// Which tokens of an example a model learns to write.
enum class TrainOn {
  kAssistant,  // the assistant's turns, or the completion of a prompt
  kLast,       // the assistant's last turn
  kAll,        // everything after BOS
};
enum class LearningSchedule { kConstant, kLinear, kCosine };
enum class OnLongLine { kCut, kDrop, kError };
// The model of Hugging Face whose modules the names in a PEFT file mean.
enum class AdapterNames {
  kText,        // Gemma4ForCausalLM
  kMultimodal,  // Gemma4ForConditionalGeneration, where the text model is a part
};

// The fine-tuning of low-rank adapters (`rullama finetune`).
struct TrainingConfig {
  std::optional<std::string> data;  // a file of lines, or a folder with train.jsonl
  std::string output = "adapters";  // the folder that the adapter goes to
  // The adapter.
  int64_t rank = 16;
  double alpha = 32;    // the product of A and B counts alpha / rank
  bool rslora = false;  // it counts alpha / sqrt(rank)
  std::vector<std::string> targets = {"all"};
  int64_t num_layers = -1;  // the last ones; -1: all
  AdapterNames hf_prefix = AdapterNames::kText;
  // The optimizer: AdamW.
  double learning_rate = 2e-4;
  double min_learning_rate = 0;  // at the last step
  LearningSchedule schedule = LearningSchedule::kCosine;
  std::optional<int64_t> warmup_steps;  // 3 % of the steps
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  double max_grad_norm = 1;  // 0: gradients are not clipped
  // Steps.
  std::optional<int64_t> epochs;        // 1, unless `iters` is given
  std::optional<int64_t> iters;         // optimizer steps
  int64_t batch_size = 4;               // examples
  int64_t grad_accumulation_steps = 1;  // batches of an optimizer step
  int64_t max_seq_length = 2048;        // tokens of an example, and rows of a device step
  int64_t seed = 0;
  bool shuffle = true;
  // Data.
  TrainOn train_on = TrainOn::kAssistant;
  bool raw = false;  // prompt and completion without the chat template
  OnLongLine on_long = OnLongLine::kCut;
  bool strict = false;   // a line without a token to learn is an error
  double val_split = 0;  // part of the lines that is kept for validation
  // Members of a line.
  std::string chat_key = "messages";
  std::string prompt_key = "prompt";
  std::string completion_key = "completion";
  std::string text_key = "text";
  // Reports.
  int64_t steps_per_report = 10;
  int64_t steps_per_eval = 200;
  int64_t val_batches = -1;   // of a validation; -1: all
  int64_t test_batches = -1;  // of the test
  int64_t save_every = 100;
  std::optional<bool> grad_checkpoint;  // compute activations again instead of keeping them
};

struct Config {
  ModelConfig model;
  ContextConfig context;
  BackendConfig backend;
  PluginsConfig plugins;
  PlacementConfig placement;
  SamplerConfig sampler;
  GenerationConfig generation;
  DraftsConfig drafts;
  DiffConfig diff;
  ServerConfig server;
  TrainingConfig training;
  ArchitectureConfig architecture;
};

}  // namespace rullama
