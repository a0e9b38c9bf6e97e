#include "engine/training/run_settings.h"

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json_reader.h"
#include "core/base/mmap_file.h"
#include "core/config/schema.h"
#include "engine/training/checkpoint.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kRunSettingsFile = "settings.json";
constexpr std::string_view kOutputSetting = "training.output";

using Settings = std::vector<std::pair<std::string, std::string>>;

// The same file from any folder. Names of Ollama stay.
std::string FromAnywhere(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) ? fs::absolute(path, ignored).string() : path;
}

bool IsKept(std::string_view path) {
  return path == "generation.thinking" || (path.starts_with("training.") && path != kOutputSetting);
}

Result<Settings> ReadSettings(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kRunSettingsFile;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return MakeError(ErrorKind::kUsage, "train.resume",
                     "'{}' has no {}, so it was written by an earlier version; begin another run "
                     "with its adapter (--adapter-init)",
                     checkpoint.string(), kRunSettingsFile);
  }
  RL_ASSIGN_OR_RETURN(const MmapFile file, MmapFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  const auto bad = [&](std::string_view why) {
    return MakeError(ErrorKind::kUsage, "train.resume",
                     "'{}' {}, expected the settings of `rullama finetune`", path.string(), why);
  };
  const auto read = ReadOrderedJson(text);
  if (!read) return bad(read.error().ToString());
  if (!read->is_object()) return bad("is not a JSON object");
  Settings settings;
  for (const auto& [key, value] : read->items()) {
    if (!value.is_string()) return bad("has a value that is not a string");
    settings.emplace_back(key, value.get<std::string>());
  }
  return settings;
}

bool IsGiven(const LayeredConfig& config, std::span<const std::string_view> paths) {
  for (const std::string_view path : paths) {
    if (config.origin(path) > Origin::kModelFile) return true;
  }
  return false;
}

}  // namespace

Status WriteRunSettings(const Config& config, const std::string& backend, const fs::path& folder) {
  OrderedJson settings = OrderedJson::object();
  settings["model.path"] = FromAnywhere(config.model.path.value_or(std::string()));
  settings["backend.name"] = backend;
  if (!config.backend.device.empty()) settings["backend.device"] = config.backend.device;
  for (const auto& [name, value] : config.backend.options) {
    settings["backend.options." + name] = value;
  }
  for (const std::string& path : FieldPaths()) {
    if (!IsKept(path)) continue;
    const auto printed = FindField(path)->print(config);
    if (!printed) continue;
    // As LayeredConfig::Set takes it: texts by themselves have no quotes.
    const auto text = ReadJson(*printed);
    settings[path] = text && text->is_string() ? text->get<std::string>() : *printed;
  }
  if (config.training.data) settings["training.data"] = FromAnywhere(*config.training.data);
  const std::string text =
      settings.dump(2, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace) + "\n";
  return WriteCheckpointFile(folder / kRunSettingsFile, std::as_bytes(std::span(text)));
}

Status ApplyRunSettings(const std::string& resume, LayeredConfig& config) {
  if (resume.empty()) return OkStatus();
  constexpr std::array<std::string_view, 2> kStepSettings = {"training.iters", "training.epochs"};
  constexpr std::array<std::string_view, 2> kBackendSettings = {"backend.name", "backend.devices"};
  RL_ASSIGN_OR_RETURN(const fs::path checkpoint, FindCheckpoint(resume));
  RL_ASSIGN_OR_RETURN(Settings settings, ReadSettings(checkpoint));
  const bool other_steps = IsGiven(config, kStepSettings);
  const bool other_backend = IsGiven(config, kBackendSettings);
  const fs::path folder = checkpoint.parent_path();
  settings.emplace_back(kOutputSetting, folder.empty() ? "." : folder.string());
  const std::string source = (checkpoint / kRunSettingsFile).string();
  for (const auto& [path, text] : settings) {
    const bool is_steps = path == kStepSettings[0] || path == kStepSettings[1];
    if ((other_steps && is_steps) || (other_backend && path.starts_with("backend."))) continue;
    RL_RETURN_IF_ERROR(config.Set(path, text, Origin::kModelFile, source));
  }
  return OkStatus();
}

}  // namespace rullama
