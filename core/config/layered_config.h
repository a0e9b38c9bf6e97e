// A Config put together from layers, each value remembering where it came from.
//
//   LayeredConfig config;
//   RL_RETURN_IF_ERROR(config.ApplyFile("configs/e2b.yaml"));
//   RL_RETURN_IF_ERROR(config.Set("sampler.temperature", "0.7", Origin::kFlag, "--temp"));
//   RL_RETURN_IF_ERROR(config.Finish());
//   Use(config.values());
//
// A value replaces one of a lower or equal origin, whatever the order of the calls; lists are
// replaced as a whole, maps (backend.options, sampler.logit_bias) entry by entry. Every value goes
// through the same range checks, also one that is then outranked.
//
// Errors are kUsage (exit code 2): config.open, config.unknown_key, config.duplicate_key,
// config.type, config.range, config.limit, config.encoding, config.syntax, config.conflict. After
// an error the object is as it was before the call.
// Thread safety: none; const use from several threads is fine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/config/environment.h"
#include "core/config/yaml_tree.h"

namespace rullama {

struct BlockSpec;
struct FieldSpec;
struct ValueFault;

// The origins of a value in rising precedence.
enum class Origin { kDefault, kModelFile, kYaml, kEnvironment, kFlag };
std::string_view OriginName(Origin origin);

class LayeredConfig {
 public:
  // The YAML layer. `source` names the text in messages; relative files in it are resolved against
  // `base_dir` (empty: they stay as they are).
  [[nodiscard]] Status ApplyYaml(std::string_view text, std::string_view source,
                                 const std::filesystem::path& base_dir = {});
  [[nodiscard]] Status ApplyFile(const std::filesystem::path& path);

  // The environment layer: RULLAMA_BACKEND. (The other variables are not values of a Config.)
  [[nodiscard]] Status ApplyEnvironment(const EnvironmentOverrides& environment);

  // One value from a flag or a model file. `path` is "block.key", or "block.map.entry" for one
  // entry of a map; `text` is as in YAML, without quotes, [a, b] for a list and {a: 1} for a block;
  // `source` begins the message of an error, for example "--temp".
  [[nodiscard]] Status Set(std::string_view path, std::string_view text, Origin origin,
                           std::string_view source);
  [[nodiscard]] Status SetList(std::string_view path, std::span<const std::string> items,
                               Origin origin, std::string_view source);

  // Makes the checks that need all layers: takes back settings of a backend that a higher layer
  // replaced (see notices) and checks values against each other.
  [[nodiscard]] Status Finish();

  // The same configuration for another model, which runs on the first of backend.devices: without
  // adapters, shapes, drafts and the split of layers, which are those of this model.
  [[nodiscard]] Result<LayeredConfig> ForModel(const std::string& path) const;

  [[nodiscard]] const Config& values() const { return values_; }
  // The origin of the value of "block.key" or "block.map.entry".
  [[nodiscard]] Origin origin(std::string_view path) const;
  // Texts for the user about what Finish took back and why.
  [[nodiscard]] const std::vector<std::string>& notices() const { return notices_; }

  // All values as YAML that ApplyYaml reads back, each with its origin in a comment; keys that are
  // not set are comments.
  [[nodiscard]] std::string ToYaml() const;

 private:
  struct Layer;  // what one call applies with

  Status ApplyNode(const YamlNode& root, const Layer& layer);
  Status ApplyBlock(const BlockSpec& block, const YamlNode& node, const Layer& layer);
  Status ApplyField(const FieldSpec& field, const YamlNode& node, const Layer& layer);
  Status ApplyMap(const FieldSpec& field, const YamlNode& node, const Layer& layer);
  Status ApplyPath(std::string_view path, YamlNode node, Origin origin, std::string_view source);
  Status ApplyYamlText(std::string_view path, std::string_view text, Origin origin,
                       std::string_view source);
  // Lets `write` set the value of `path`, in a scratch Config if a higher layer has set it already.
  Status Write(const std::string& path, const Layer& layer,
               const std::function<std::optional<ValueFault>(Config&)>& write);
  Status ChooseDeviceOrList();
  void DropSettingsOfReplacedBackend();
  void DropSetting(const std::string& path, Origin chosen, const std::string& reason);

  Config values_;
  std::map<std::string, Origin, std::less<>> origins_;  // absent = kDefault
  std::map<Origin, std::string> backend_names_;         // what each layer called the backend
  std::vector<std::string> notices_;
};

// A file on its own: ApplyFile and Finish.
Result<Config> LoadConfigFile(const std::filesystem::path& path);

}  // namespace rullama
