// A codec reads one value from a YAML node, describes it to the user and prints it. It has
//   using Value = ...;
//   Parsed<Value> Parse(const YamlNode&, const ValueContext&) const;
//   std::string Describe() const;            "a whole number from 1 to 256"
//   std::string Print(const Value&) const;   YAML that Parse reads back to the same value
//
// Numbers are decimal and independent of the locale: no hexadecimal, no octal, no nan or inf.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/config/range.h"
#include "core/config/yaml_tree.h"

namespace rullama {

struct ValueContext {
  std::filesystem::path base_dir;  // relative files are relative to it; empty = leave them alone
};

// Why a node was refused. `node` points into the tree that was parsed.
struct ValueFault {
  enum class Kind { kType, kRange };
  Kind kind = Kind::kType;
  const YamlNode* node = nullptr;
  std::string expected;
  std::string hint;  // may be empty
};

template <typename T>
using Parsed = tl::expected<T, ValueFault>;

struct IntegerCodec {
  using Value = int64_t;
  IntegerRange range;
  [[nodiscard]] Parsed<int64_t> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(int64_t value) const;
};

struct RealCodec {
  using Value = double;
  RealRange range;
  [[nodiscard]] Parsed<double> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(double value) const;
};

struct BoolCodec {
  using Value = bool;
  [[nodiscard]] Parsed<bool> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(bool value) const;
};

// Any text, also of several lines.
struct TextCodec {
  using Value = std::string;
  bool allow_empty = true;
  [[nodiscard]] Parsed<std::string> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(const std::string& value) const;
};

// Text that names something: not empty, no control characters.
struct NameCodec {
  using Value = std::string;
  [[nodiscard]] Parsed<std::string> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(const std::string& value) const;
};

// The name of an option of a plugin: lower-case letters, digits and underscores.
struct OptionNameCodec {
  using Value = std::string;
  [[nodiscard]] Parsed<std::string> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(const std::string& value) const;
};

// A file or directory, made relative to the working directory.
struct FileCodec {
  using Value = std::string;
  [[nodiscard]] Parsed<std::string> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(const std::string& value) const;
};

// A model file or an Ollama name; see LooksLikeModelFile.
struct ModelCodec {
  using Value = std::string;
  [[nodiscard]] Parsed<std::string> Parse(const YamlNode& node, const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(const std::string& value) const;
};

// A low-rank adapter: FILE, FILE:SCALE, or {path: FILE, scale: SCALE}. The text after the last
// colon is a scale if it is a number.
struct AdapterCodec {
  using Value = AdapterSetting;
  [[nodiscard]] Parsed<AdapterSetting> Parse(const YamlNode& node,
                                             const ValueContext& context) const;
  [[nodiscard]] std::string Describe() const;
  [[nodiscard]] std::string Print(const AdapterSetting& value) const;
};

// Whether model.path means a file: it begins with '/' or '.', or ends in ".gguf". Anything else is
// the name of a model in Ollama's store; those never begin with a dot.
bool LooksLikeModelFile(std::string_view path);

// One of a few words, each standing for a value of E.
template <typename E>
struct ChoiceCodec {
  using Value = E;
  std::vector<std::pair<std::string_view, E>> choices;

  [[nodiscard]] Parsed<E> Parse(const YamlNode& node, const ValueContext& /*context*/) const {
    if (node.kind == YamlNode::Kind::kScalar) {
      for (const auto& [word, value] : choices) {
        if (word == node.text) return value;
      }
    }
    return tl::unexpected(ValueFault{ValueFault::Kind::kType, &node, Describe(), {}});
  }
  [[nodiscard]] std::string Describe() const {
    std::string words;
    for (const auto& [word, value] : choices) {
      if (!words.empty()) words += ", ";
      words += word;
    }
    return choices.size() == 1 ? words : "one of " + words;
  }
  [[nodiscard]] std::string Print(E wanted) const {
    for (const auto& [word, value] : choices) {
      if (value == wanted) return std::string(word);
    }
    return {};
  }
};

template <typename Item>
struct ListCodec {
  using Value = std::vector<typename Item::Value>;
  Item item;

  [[nodiscard]] Parsed<Value> Parse(const YamlNode& node, const ValueContext& context) const {
    if (node.kind != YamlNode::Kind::kSequence) {
      return tl::unexpected(
          ValueFault{ValueFault::Kind::kType, &node, Describe(), "write [a, b], also for one"});
    }
    Value values;
    for (const YamlNode& child : node.items) {
      auto value = item.Parse(child, context);
      if (!value) return tl::unexpected(value.error());
      values.push_back(*std::move(value));
    }
    return values;
  }
  [[nodiscard]] std::string Describe() const { return "a list, each " + item.Describe(); }
  [[nodiscard]] std::string Print(const Value& values) const {
    std::string text;
    for (const auto& value : values) text += (text.empty() ? "" : ", ") + item.Print(value);
    return "[" + text + "]";
  }
};

// The word `auto`, which means no value, or a value of Item.
template <typename Item>
struct AutoCodec {
  using Value = std::optional<typename Item::Value>;
  static constexpr std::string_view kAuto = "auto";
  Item item;

  [[nodiscard]] Parsed<Value> Parse(const YamlNode& node, const ValueContext& context) const {
    if (node.kind == YamlNode::Kind::kScalar && node.text == kAuto) return Value();
    auto value = item.Parse(node, context);
    if (value) return Value(*std::move(value));
    ValueFault fault = std::move(value).error();
    if (fault.node == &node) fault.expected = Describe();
    return tl::unexpected(std::move(fault));
  }
  [[nodiscard]] std::string Describe() const { return "auto, or " + item.Describe(); }
  [[nodiscard]] std::string Print(const Value& value) const {
    return value ? item.Print(*value) : std::string(kAuto);
  }
};

// Two whole numbers with names, or one number that stands for both: `4` or `{a: 4, b: 1}`.
template <typename Pair>
struct PairCodec {
  using Value = Pair;
  IntegerCodec number;
  std::string_view first_name;
  int64_t Pair::*first;
  std::string_view second_name;
  int64_t Pair::*second;

  [[nodiscard]] Parsed<Pair> Parse(const YamlNode& node, const ValueContext& context) const {
    Pair pair;
    if (node.kind == YamlNode::Kind::kScalar) {
      const auto both = number.Parse(node, context);
      if (!both) return tl::unexpected(WithOwnDescription(both.error()));
      pair.*first = pair.*second = *both;
      return pair;
    }
    if (node.kind != YamlNode::Kind::kMap || node.entries.size() != 2) return Refuse(node);
    // Keys are distinct, so two known keys are both keys.
    for (const YamlEntry& entry : node.entries) {
      const bool is_first = entry.key.text == first_name;
      if (!is_first && entry.key.text != second_name) return Refuse(entry.key);
      const auto value = number.Parse(entry.value, context);
      if (!value) return tl::unexpected(value.error());
      pair.*(is_first ? first : second) = *value;
    }
    return pair;
  }
  [[nodiscard]] std::string Describe() const {
    return number.Describe() + ", or {" + std::string(first_name) + ": N, " +
           std::string(second_name) + ": N}";
  }
  [[nodiscard]] std::string Print(const Pair& pair) const {
    if (pair.*first == pair.*second) return number.Print(pair.*first);
    return "{" + std::string(first_name) + ": " + number.Print(pair.*first) + ", " +
           std::string(second_name) + ": " + number.Print(pair.*second) + "}";
  }

 private:
  [[nodiscard]] tl::unexpected<ValueFault> Refuse(const YamlNode& node) const {
    return tl::unexpected(ValueFault{ValueFault::Kind::kType, &node, Describe(), {}});
  }
  [[nodiscard]] ValueFault WithOwnDescription(ValueFault fault) const {
    fault.expected = Describe();
    return fault;
  }
};

}  // namespace rullama
