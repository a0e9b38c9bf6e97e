// The codecs (value_codec.h) of the models that the server answers with, and of how long they stay.
#pragma once

#include <string>

#include "core/config/value_codec.h"

namespace rullama {

// "5m", "1h30m" or a number of seconds; negative: for ever.
struct KeepAliveCodec {
  using Value = KeepAlive;
  [[nodiscard]] Parsed<KeepAlive> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(KeepAlive value) const;
};

// FILE, an Ollama name, or a block of path, name, keep_alive, adapters and settings.
struct ServedModelCodec {
  using Value = ServedModelSetting;
  [[nodiscard]] Parsed<ServedModelSetting> Parse(const YamlNode& node,
                                                 const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(const ServedModelSetting& value) const;
};

// A block of name and model.
struct ModelAliasCodec {
  using Value = ModelAlias;
  [[nodiscard]] Parsed<ModelAlias> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(const ModelAlias& value) const;
};

}  // namespace rullama
