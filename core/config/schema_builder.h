// The pieces a configuration schema is declared with. One row per key,
//
//   BlockBuilder<&Config::context>("context", "Memory for the conversation.")
//       .Field("slots", &ContextConfig::slots, IntegerCodec{1, 256}, "Sequences that ...")
//
// drives parsing, range checks, overriding from flags and the environment, `config --show`, the
// generated docs/configuration.md and spelling hints.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/config/value_codec.h"

namespace rullama {

// One key. The functions read and write that key's member of a Config.
struct FieldSpec {
  std::string key;
  std::string path;     // "sampler.top_k"
  std::string accepts;  // what a value may be, in words
  std::string absent;   // what holds when the key is not given
  std::string doc;
  // A map has entries of its own, each set and overridden separately: "backend.options.threads".
  bool is_map = false;
  std::function<std::optional<ValueFault>(Config&, const YamlNode&, const ValueContext&)> assign;
  std::function<std::optional<ValueFault>(Config&, const YamlEntry&, const ValueContext&)>
      assign_entry;
  // The value as YAML, for a map its keys and values; nothing while it is unset.
  std::function<std::optional<std::string>(const Config&)> print;
  std::function<std::vector<std::pair<std::string, std::string>>(const Config&)> print_entries;
};

struct BlockSpec {
  std::string key;
  std::string path;  // "architecture.rope"
  std::string doc;
  std::vector<FieldSpec> fields;
  std::vector<BlockSpec> blocks;
};

// Declares one block. `Members` is the way from Config to the block's struct.
template <auto... Members>
class BlockBuilder {
 public:
  BlockBuilder(std::string_view path, std::string_view doc) {
    const size_t dot = path.rfind('.');
    block_.path = path;
    block_.key = dot == std::string_view::npos ? path : path.substr(dot + 1);
    block_.doc = doc;
  }

  // A member of type Codec::Value, or std::optional of it. `absent` is what the documentation says
  // about a key that is not given; for a plain member it is the default value.
  template <typename Member, typename Owner, typename Codec>
  BlockBuilder&& Field(std::string_view key, Member Owner::*member, Codec codec,
                       std::string_view doc, std::string_view absent = {}) && {
    FieldSpec field = NewField(key, codec.Describe(), doc);
    field.assign = [member, codec](Config& config, const YamlNode& node,
                                   const ValueContext& context) -> std::optional<ValueFault> {
      auto value = codec.Parse(node, context);
      if (!value) return std::move(value).error();
      Block(config).*member = *std::move(value);
      return std::nullopt;
    };
    field.print = [member, codec](const Config& config) -> std::optional<std::string> {
      const auto& value = Block(config).*member;
      if constexpr (std::is_same_v<Member, std::optional<typename Codec::Value>>) {
        if (!value) return std::nullopt;
        return codec.Print(*value);
      } else {
        return codec.Print(value);
      }
    };
    if (absent.empty()) {
      const Config defaults;
      field.absent = field.print(defaults).value_or(std::string());
    } else {
      field.absent = absent;
    }
    return Add(std::move(field));
  }

  // A std::map from KeyCodec::Value to ValueCodec::Value.
  template <typename Map, typename Owner, typename KeyCodec, typename ValueCodec>
  BlockBuilder&& MapField(std::string_view key, Map Owner::*member, KeyCodec key_codec,
                          ValueCodec value_codec, std::string_view doc) && {
    FieldSpec field = NewField(
        key, "a block; keys: " + key_codec.Describe() + "; values: " + value_codec.Describe(), doc);
    field.is_map = true;
    field.assign_entry = [member, key_codec, value_codec](
                             Config& config, const YamlEntry& entry,
                             const ValueContext& context) -> std::optional<ValueFault> {
      auto name = key_codec.Parse(entry.key, context);
      if (!name) return std::move(name).error();
      auto value = value_codec.Parse(entry.value, context);
      if (!value) return std::move(value).error();
      (Block(config).*member)[*std::move(name)] = *std::move(value);
      return std::nullopt;
    };
    field.print_entries = [member, key_codec, value_codec](const Config& config) {
      std::vector<std::pair<std::string, std::string>> entries;
      for (const auto& [name, value] : Block(config).*member) {
        entries.emplace_back(key_codec.Print(name), value_codec.Print(value));
      }
      return entries;
    };
    field.absent = "none";
    return Add(std::move(field));
  }

  BlockBuilder&& Nested(BlockSpec block) && {
    block_.blocks.push_back(std::move(block));
    return std::move(*this);
  }

  BlockSpec Build() && { return std::move(block_); }

 private:
  template <typename AnyConfig>
  static auto& Block(AnyConfig& config) {
    return (config.*....*Members);
  }

  FieldSpec NewField(std::string_view key, std::string accepts, std::string_view doc) const {
    FieldSpec field;
    field.key = key;
    field.path = block_.path + "." + std::string(key);
    field.accepts = std::move(accepts);
    field.doc = doc;
    return field;
  }

  BlockBuilder&& Add(FieldSpec field) {
    block_.fields.push_back(std::move(field));
    return std::move(*this);
  }

  BlockSpec block_;
};

}  // namespace rullama
