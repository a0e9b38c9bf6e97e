#include "core/config/layered_config.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "core/base/mmap_file.h"
#include "core/base/utf8.h"
#include "core/config/consistency.h"
#include "core/config/device_codecs.h"
#include "core/config/device_name.h"
#include "core/config/foreign_keys.h"
#include "core/config/nearest_key.h"
#include "core/config/schema.h"

namespace rullama {

struct LayeredConfig::Layer {
  Origin origin;
  std::string_view source;
  ValueContext context;
};

namespace {

std::string_view KindName(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kSequence:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a block";
    case YamlNode::Kind::kScalar:
      break;
  }
  return "a value";
}

std::string DescribeFound(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar) return std::string(KindName(node));
  return (node.quoted ? "the quoted text " : "") + QuoteForMessage(node.text);
}

tl::unexpected<Error> FaultError(const ValueFault& fault, std::string_view path,
                                 std::string_view source) {
  const bool range = fault.kind == ValueFault::Kind::kRange;
  return MakeError(ErrorKind::kUsage, range ? "config.range" : "config.type",
                   "{}: {}: expected {}, found {}{}{}",
                   FormatPosition(source, fault.node->line, fault.node->column), path,
                   fault.expected, DescribeFound(*fault.node), fault.hint.empty() ? "" : "; ",
                   fault.hint);
}

// "did you mean ...?", the list of what there is, or what to use instead of another program's key.
std::string HintForKey(const BlockSpec& block, std::string_view key) {
  if (block.path.empty() || block.path == "training") {
    if (const std::string_view advice = AdviceOnKey(key); !advice.empty()) {
      return std::string(advice);
    }
  }
  std::vector<std::string> known;
  known.reserve(block.fields.size());
  for (const FieldSpec& field : block.fields) known.push_back(field.key);
  for (const BlockSpec& child : block.blocks) known.push_back(child.key);
  if (const std::string near = NearestName(key, known); !near.empty()) {
    return fmt::format("did you mean '{}'?", near);
  }
  // The right key in the wrong block.
  for (const std::string& path : FieldPaths()) {
    if (FindField(path)->key == key) return fmt::format("did you mean '{}'?", path);
  }
  // Each backend has options of its own, which are not keys of the configuration.
  const std::string option = block.path == "backend"
                                 ? "; an option of the backend is " +
                                       QuoteForMessage(fmt::format("backend.options.{}", key))
                                 : "";
  return fmt::format("known keys: {}{}", fmt::join(known, ", "), option);
}

}  // namespace

std::string_view OriginName(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kModelFile:
      return "model file";
    case Origin::kYaml:
      return "yaml";
    case Origin::kEnvironment:
      return "environment";
    case Origin::kFlag:
      return "flag";
  }
  return "unknown";
}

Status LayeredConfig::ApplyYaml(std::string_view text, std::string_view source,
                                const std::filesystem::path& base_dir) {
  RL_ASSIGN_OR_RETURN(const YamlNode root, ParseYamlTree(text, source));
  return ApplyNode(root, {Origin::kYaml, source, {base_dir}});
}

Status LayeredConfig::ApplyFile(const std::filesystem::path& path) {
  const auto file = MmapFile::Open(path);
  if (!file) {
    // A configuration that cannot be read is a mistake in the command, not a failure of a disk.
    return MakeError(ErrorKind::kUsage, "config.open", "configuration: {}", file.error().message);
  }
  const auto bytes = file->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::filesystem::path folder = path.parent_path();
  return ApplyYaml(text, path.string(), folder.empty() ? "." : folder);
}

Status LayeredConfig::ApplyEnvironment(const EnvironmentOverrides& environment) {
  if (!environment.backend) return OkStatus();
  return Set("backend.name", *environment.backend, Origin::kEnvironment, "RULLAMA_BACKEND");
}

Status LayeredConfig::Set(std::string_view path, std::string_view text, Origin origin,
                          std::string_view source) {
  // A file on Linux may have any bytes in its name; all else is text, as YAML is.
  if (path != "model.path" && path != "model.mmproj" && FindInvalidUtf8(text)) {
    return MakeError(ErrorKind::kUsage, "config.type", "{}: {}: expected UTF-8 text, found {}",
                     source, path, QuoteForMessage(text));
  }
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = text;
  if (!text.starts_with('[') && !text.starts_with('{')) {
    return ApplyPath(path, std::move(node), origin, source);
  }
  Status as_yaml = ApplyYamlText(path, text, origin, source);
  // Where text is expected, brackets are a part of it.
  if (as_yaml || ApplyPath(path, std::move(node), origin, source)) return OkStatus();
  return as_yaml;
}

Status LayeredConfig::ApplyYamlText(std::string_view path, std::string_view text, Origin origin,
                                    std::string_view source) {
  RL_ASSIGN_OR_RETURN(YamlNode node, ParseYamlTree(text, source));
  return ApplyPath(path, std::move(node), origin, source);
}

Status LayeredConfig::SetList(std::string_view path, std::span<const std::string> items,
                              Origin origin, std::string_view source) {
  YamlNode node;
  node.kind = YamlNode::Kind::kSequence;
  for (const std::string& item : items) {
    YamlNode& child = node.items.emplace_back();
    child.kind = YamlNode::Kind::kScalar;
    child.text = item;
  }
  return ApplyPath(path, std::move(node), origin, source);
}

// Builds the tree the same value would have in YAML: `a.b.c` and a value give {a: {b: {c: value}}}.
Status LayeredConfig::ApplyPath(std::string_view path, YamlNode node, Origin origin,
                                std::string_view source) {
  constexpr size_t kMaxParts = 3;  // no path of the schema has more
  std::vector<std::string_view> parts;
  for (std::string_view rest = path; parts.size() + 1 < kMaxParts;) {
    const size_t dot = rest.find('.');
    if (dot == std::string_view::npos) break;
    parts.push_back(rest.substr(0, dot));
    rest.remove_prefix(dot + 1);
  }
  size_t taken = 0;
  for (const std::string_view part : parts) taken += part.size() + 1;
  parts.push_back(path.substr(taken));
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    YamlNode parent;
    parent.kind = YamlNode::Kind::kMap;
    YamlEntry& entry = parent.entries.emplace_back();
    entry.key.kind = YamlNode::Kind::kScalar;
    entry.key.text = *part;
    entry.value = std::move(node);
    node = std::move(parent);
  }
  return ApplyNode(node, {origin, source, {}});
}

Status LayeredConfig::ApplyNode(const YamlNode& root, const Layer& layer) {
  LayeredConfig next = *this;
  RL_RETURN_IF_ERROR(next.ApplyBlock(ConfigSchema(), root, layer));
  *this = std::move(next);
  return OkStatus();
}

Status LayeredConfig::ApplyBlock(const BlockSpec& block, const YamlNode& node, const Layer& layer) {
  // A block whose keys are all commented out is a null.
  if (node.kind == YamlNode::Kind::kNull) return OkStatus();
  const std::string name = block.path.empty() ? "the configuration" : "'" + block.path + "'";
  if (node.kind != YamlNode::Kind::kMap) {
    // Other programs have a file here.
    const bool is_file = block.path == "model" && node.kind == YamlNode::Kind::kScalar;
    return MakeError(ErrorKind::kUsage, "config.type",
                     "{}: {}: expected keys with values, found {}{}",
                     FormatPosition(layer.source, node.line, node.column), name,
                     DescribeFound(node), is_file ? "; write model: {path: FILE}" : "");
  }
  for (const YamlEntry& entry : node.entries) {
    const auto has_key = [&entry](const auto& spec) { return spec.key == entry.key.text; };
    const auto field = std::find_if(block.fields.begin(), block.fields.end(), has_key);
    const auto child = std::find_if(block.blocks.begin(), block.blocks.end(), has_key);
    if (field != block.fields.end()) {
      RL_RETURN_IF_ERROR(ApplyField(*field, entry.value, layer));
    } else if (child != block.blocks.end()) {
      RL_RETURN_IF_ERROR(ApplyBlock(*child, entry.value, layer));
    } else {
      return MakeError(ErrorKind::kUsage, "config.unknown_key", "{}: unknown key {} in {}; {}",
                       FormatPosition(layer.source, entry.key.line, entry.key.column),
                       QuoteForMessage(entry.key.text), name, HintForKey(block, entry.key.text));
    }
  }
  return OkStatus();
}

Status LayeredConfig::ApplyField(const FieldSpec& field, const YamlNode& node, const Layer& layer) {
  if (field.is_map) return ApplyMap(field, node, layer);
  RL_RETURN_IF_ERROR(Write(field.path, layer, [&](Config& config) {
    return field.assign(config, node, layer.context);
  }));
  if (field.path == "backend.name") backend_names_[layer.origin] = node.text;
  if (field.path == "backend.devices") {
    const auto devices = DeviceListCodec().Parse(node, layer.context);
    if (devices && !devices->empty()) {
      backend_names_[layer.origin] = ParseDeviceName(devices->front().name).backend;
    }
  }
  return OkStatus();
}

Status LayeredConfig::ApplyMap(const FieldSpec& field, const YamlNode& node, const Layer& layer) {
  if (node.kind == YamlNode::Kind::kNull) return OkStatus();
  if (node.kind != YamlNode::Kind::kMap) {
    return FaultError({ValueFault::Kind::kType, &node, field.accepts, {}}, field.path,
                      layer.source);
  }
  for (const YamlEntry& entry : node.entries) {
    RL_RETURN_IF_ERROR(Write(field.path + "." + entry.key.text, layer, [&](Config& config) {
      return field.assign_entry(config, entry, layer.context);
    }));
  }
  return OkStatus();
}

Status LayeredConfig::Write(const std::string& path, const Layer& layer,
                            const std::function<std::optional<ValueFault>(Config&)>& write) {
  const bool outranked = layer.origin < origin(path);
  Config scratch;
  if (const auto fault = write(outranked ? scratch : values_)) {
    return FaultError(*fault, path, layer.source);
  }
  if (!outranked) origins_[path] = layer.origin;
  return OkStatus();
}

Origin LayeredConfig::origin(std::string_view path) const {
  const auto found = origins_.find(path);
  return found == origins_.end() ? Origin::kDefault : found->second;
}

void LayeredConfig::DropSetting(const std::string& path, Origin chosen, const std::string& reason) {
  notices_.push_back(fmt::format("{} ({}) is not used: {} ({})", path, OriginName(origin(path)),
                                 reason, OriginName(chosen)));
  origins_.erase(path);
}

// backend.name with backend.device and the list backend.devices say the same in two ways. The one
// of higher origin holds. With a list, backend.name is the backend of its first device.
Status LayeredConfig::ChooseDeviceOrList() {
  constexpr const char* kList = "backend.devices";
  BackendConfig& backend = values_.backend;
  if (backend.devices.empty()) return OkStatus();
  const std::string first = ParseDeviceName(backend.devices.front().name).backend;
  const std::tuple<const char*, std::string&, std::string> settings[] = {
      {"backend.name", backend.name, first}, {"backend.device", backend.device, {}}};
  for (const auto& [path, value, wanted] : settings) {
    const Origin list = origin(kList);
    const Origin single = origin(path);
    const bool same = value == wanted;
    if (single > list && !same) {
      backend.devices.clear();
      DropSetting(kList, single, fmt::format("{} replaces the list", path));
      return OkStatus();
    }
    if (single == list && !same) {
      return MakeError(ErrorKind::kUsage, "config.conflict",
                       "{} is '{}', which contradicts {} ({}); name the devices in one of them",
                       path, value, kList, OriginName(list));
    }
    if (single != Origin::kDefault && !same) {
      DropSetting(path, list, fmt::format("{} replaces it", kList));
    }
    value = wanted;
  }
  return OkStatus();
}

// `--backend cpu` with a file written for vulkan must not hand vulkan's device and options to cpu.
void LayeredConfig::DropSettingsOfReplacedBackend() {
  const bool list = !values_.backend.devices.empty();
  const Origin chosen = origin(list ? "backend.devices" : "backend.name");
  const auto belongs_to_another = [&](const std::string& path) {
    const Origin setting = origin(path);
    if (setting >= chosen) return false;
    const auto named = backend_names_.find(setting);
    const std::string meant = named == backend_names_.end() ? BackendConfig{}.name : named->second;
    return meant != values_.backend.name;
  };
  const auto drop = [&](const std::string& path) {
    DropSetting(path, chosen,
                fmt::format("it was not meant for the backend '{}'", values_.backend.name));
  };
  if (origin("backend.device") != Origin::kDefault && belongs_to_another("backend.device")) {
    values_.backend.device = BackendConfig{}.device;
    drop("backend.device");
  }
  std::erase_if(values_.backend.options, [&](const auto& option) {
    const std::string path = "backend.options." + option.first;
    if (!belongs_to_another(path)) return false;
    drop(path);
    return true;
  });
}

Status LayeredConfig::Finish() {
  RL_RETURN_IF_ERROR(CheckConsistency(values_));
  RL_RETURN_IF_ERROR(ChooseDeviceOrList());
  DropSettingsOfReplacedBackend();
  return OkStatus();
}

Result<LayeredConfig> LayeredConfig::ForModel(const std::string& path) const {
  LayeredConfig other = *this;
  other.values_.model = {};
  other.values_.drafts = {};
  other.values_.architecture = {};
  other.values_.placement.split = {};
  std::erase_if(other.origins_, [](const auto& origin) {
    return origin.first.starts_with("model.") || origin.first.starts_with("drafts.") ||
           origin.first.starts_with("architecture.") || origin.first == "backend.devices" ||
           origin.first == "placement.split";
  });
  BackendConfig& backend = other.values_.backend;
  if (!backend.devices.empty()) {
    backend.device = ParseDeviceName(backend.devices.front().name).device;
    backend.options = OptionsOf(backend, 0);
    backend.devices.clear();
  }
  RL_RETURN_IF_ERROR(other.Set("model.path", path, Origin::kFlag, "drafts.model"));
  return other;
}

Result<Config> LoadConfigFile(const std::filesystem::path& path) {
  LayeredConfig config;
  RL_RETURN_IF_ERROR(config.ApplyFile(path));
  RL_RETURN_IF_ERROR(config.Finish());
  return config.values();
}

}  // namespace rullama
