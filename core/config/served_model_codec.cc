#include "core/config/served_model_codec.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace rullama {
namespace {

// Lets `codec` read a member; the fault if it cannot.
template <typename Codec, typename Member>
std::optional<ValueFault> Read(const Codec& codec, const YamlNode& node,
                               const ValueContext& context, Member& member) {
  auto value = codec.Parse(node, context);
  if (!value) return std::move(value).error();
  member = *std::move(value);
  return std::nullopt;
}

std::optional<ValueFault> ReadSettings(const YamlNode& node, const ValueContext& context,
                                       std::map<std::string, std::string>& settings) {
  if (node.kind != YamlNode::Kind::kMap) {
    return ValueFault{ValueFault::Kind::kType, &node, "a block of keys such as context.slots", {}};
  }
  for (const YamlEntry& entry : node.entries) {
    auto fault = Read(TextCodec{}, entry.value, context, settings[entry.key.text]);
    if (fault) return fault;
  }
  return std::nullopt;
}

std::optional<ValueFault> ReadMember(const YamlEntry& entry, const ValueContext& context,
                                     ServedModelSetting& model) {
  const std::string& key = entry.key.text;
  const YamlNode& value = entry.value;
  if (key == "path") return Read(ModelCodec{}, value, context, model.path);
  if (key == "name") return Read(NameCodec{}, value, context, model.name);
  if (key == "keep_alive") return Read(KeepAliveCodec{}, value, context, model.keep_alive);
  if (key == "adapters") return Read(ListCodec<AdapterCodec>{}, value, context, model.adapters);
  if (key == "mmproj") return Read(FileCodec{}, value, context, model.mmproj);
  if (key == "settings") return ReadSettings(value, context, model.settings);
  return ValueFault{ValueFault::Kind::kType,
                    &entry.key,
                    "path, name, keep_alive, adapters, mmproj or settings",
                    {}};
}

}  // namespace

Parsed<KeepAlive> KeepAliveCodec::Parse(const YamlNode& node,
                                        const ValueContext& /*context*/) const {
  if (node.kind == YamlNode::Kind::kScalar) {
    if (const auto keep = ParseKeepAlive(node.text)) return *keep;
  }
  return tl::unexpected(ValueFault{ValueFault::Kind::kType, &node, Describe(), {}});
}

std::string KeepAliveCodec::Describe() const {
  return "a duration such as 5m or 1h30m, or seconds; negative: for ever";
}

std::string KeepAliveCodec::Print(KeepAlive value) const { return KeepAliveText(value); }

Parsed<ServedModelSetting> ServedModelCodec::Parse(const YamlNode& node,
                                                   const ValueContext& context) const {
  ServedModelSetting model;
  if (node.kind != YamlNode::Kind::kMap) {
    if (auto fault = Read(ModelCodec{}, node, context, model.path)) {
      fault->expected = Describe();
      return tl::unexpected(*std::move(fault));
    }
    return model;
  }
  for (const YamlEntry& entry : node.entries) {
    if (auto fault = ReadMember(entry, context, model)) return tl::unexpected(*std::move(fault));
  }
  if (model.path.empty()) {
    return tl::unexpected(ValueFault{ValueFault::Kind::kType, &node, Describe(), "add path"});
  }
  return model;
}

Parsed<ModelAlias> ModelAliasCodec::Parse(const YamlNode& node, const ValueContext& context) const {
  const auto wrong = [this](const YamlNode& at, const char* what_to_do) {
    return tl::unexpected(ValueFault{ValueFault::Kind::kType, &at, Describe(), what_to_do});
  };
  if (node.kind != YamlNode::Kind::kMap) return wrong(node, "");
  ModelAlias alias;
  for (const YamlEntry& entry : node.entries) {
    const std::string& key = entry.key.text;
    if (key != "name" && key != "model") return wrong(entry.key, "");
    auto fault = Read(NameCodec{}, entry.value, context, key == "name" ? alias.name : alias.model);
    if (fault) return tl::unexpected(*std::move(fault));
  }
  if (alias.name.empty() || alias.model.empty()) return wrong(node, "give both");
  if (alias.name.find('*') < alias.name.size() - 1) return wrong(node, "put * at the end alone");
  return alias;
}

std::string ModelAliasCodec::Describe() const {
  return "a block with name, which may end in *, and model";
}

std::string ModelAliasCodec::Print(const ModelAlias& value) const {
  return "{name: " + NameCodec{}.Print(value.name) + ", model: " + NameCodec{}.Print(value.model) +
         "}";
}

std::string ServedModelCodec::Describe() const {
  return "a file, an Ollama name, or a block with path and, where wanted, name, keep_alive, "
         "adapters, mmproj and settings";
}

std::string ServedModelCodec::Print(const ServedModelSetting& value) const {
  std::string text = "{path: " + ModelCodec{}.Print(value.path);
  if (!value.name.empty()) text += ", name: " + NameCodec{}.Print(value.name);
  if (value.keep_alive) text += ", keep_alive: " + KeepAliveCodec{}.Print(*value.keep_alive);
  if (!value.adapters.empty()) {
    text += ", adapters: " + ListCodec<AdapterCodec>{}.Print(value.adapters);
  }
  if (value.mmproj) text += ", mmproj: " + FileCodec{}.Print(*value.mmproj);
  std::string settings;
  for (const auto& [key, setting] : value.settings) {
    settings +=
        (settings.empty() ? "" : ", ") + NameCodec{}.Print(key) + ": " + TextCodec{}.Print(setting);
  }
  if (!settings.empty()) text += ", settings: {" + settings + "}";
  return text + "}";
}

}  // namespace rullama
