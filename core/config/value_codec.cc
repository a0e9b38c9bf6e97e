#include "core/config/value_codec.h"

#include <algorithm>
#include <cmath>
#include <system_error>

#include "core/base/adapter_limits.h"
#include "core/base/from_chars.h"
#include "core/base/printable.h"

namespace rullama {
namespace {

ValueFault Fault(ValueFault::Kind kind, const YamlNode& node, std::string expected,
                 std::string hint = {}) {
  return {kind, &node, std::move(expected), std::move(hint)};
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view WithoutSign(std::string_view text) {
  return !text.empty() && (text[0] == '-' || text[0] == '+') ? text.substr(1) : text;
}

// Whether someone meant a number: then the answer names the range rather than the type.
bool LooksNumeric(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return false;
  std::string_view text = WithoutSign(node.text);
  if (text.substr(0, 1) == ".") text.remove_prefix(1);
  if (text.empty()) return false;
  if (IsDigit(text[0])) return true;
  std::string lower(text.substr(0, 3));
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower == "nan" || lower == "inf";
}

// The decimal number that is all of `text`. std::from_chars knows no locale.
template <typename T>
std::optional<T> ParseDecimal(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = FromChars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

ValueFault NumberFault(const YamlNode& node, const std::string& expected) {
  const std::string hint =
      node.kind == YamlNode::Kind::kScalar && node.quoted ? "remove the quotes" : "";
  return Fault(LooksNumeric(node) ? ValueFault::Kind::kRange : ValueFault::Kind::kType, node,
               expected, hint);
}

bool HasControlCharacter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}

}  // namespace

Parsed<int64_t> IntegerCodec::Parse(const YamlNode& node, const ValueContext& /*context*/) const {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) {
    return tl::unexpected(NumberFault(node, Describe()));
  }
  // YAML 1.1 reads 010 as eight; nobody is helped by either reading. One number has one
  // spelling, so that map keys that differ as text differ as numbers.
  const std::string_view digits = WithoutSign(node.text);
  const bool leading_zero = digits.starts_with('0') && node.text != "0";
  const auto value = ParseDecimal<int64_t>(node.text);
  if (!value || leading_zero || !range.Contains(*value)) {
    return tl::unexpected(NumberFault(node, Describe()));
  }
  return *value;
}

std::string IntegerCodec::Describe() const { return range.Describe(); }

std::string IntegerCodec::Print(int64_t value) const { return fmt::format("{}", value); }

Parsed<double> RealCodec::Parse(const YamlNode& node, const ValueContext& /*context*/) const {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) {
    return tl::unexpected(NumberFault(node, Describe()));
  }
  const auto value = ParseDecimal<double>(node.text);
  if (!value || !std::isfinite(*value) || !range.Contains(*value)) {
    return tl::unexpected(NumberFault(node, Describe()));
  }
  return *value;
}

std::string RealCodec::Describe() const { return range.Describe(); }

std::string RealCodec::Print(double value) const { return fmt::format("{}", value); }

Parsed<bool> BoolCodec::Parse(const YamlNode& node, const ValueContext& /*context*/) const {
  if (node.kind == YamlNode::Kind::kScalar && !node.quoted) {
    if (node.text == "true") return true;
    if (node.text == "false") return false;
  }
  return tl::unexpected(Fault(ValueFault::Kind::kType, node, Describe()));
}

std::string BoolCodec::Describe() const { return "true or false"; }

std::string BoolCodec::Print(bool value) const { return value ? "true" : "false"; }

Parsed<std::string> TextCodec::Parse(const YamlNode& node, const ValueContext& /*context*/) const {
  if (node.kind == YamlNode::Kind::kScalar && (allow_empty || !node.text.empty())) return node.text;
  return tl::unexpected(Fault(ValueFault::Kind::kType, node, Describe()));
}

std::string TextCodec::Describe() const { return allow_empty ? "text" : "text, not empty"; }

std::string TextCodec::Print(const std::string& value) const { return QuotedText(value); }

Parsed<std::string> NameCodec::Parse(const YamlNode& node, const ValueContext& /*context*/) const {
  if (node.kind == YamlNode::Kind::kScalar && !node.text.empty() &&
      !HasControlCharacter(node.text)) {
    return node.text;
  }
  return tl::unexpected(Fault(ValueFault::Kind::kType, node, Describe()));
}

std::string NameCodec::Describe() const { return "a name of one line, not empty"; }

std::string NameCodec::Print(const std::string& value) const { return QuotedText(value); }

Parsed<std::string> OptionNameCodec::Parse(const YamlNode& node,
                                           const ValueContext& /*context*/) const {
  const bool valid =
      !node.text.empty() && std::all_of(node.text.begin(), node.text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || IsDigit(c) || c == '_';
      });
  // Printed without quotes, `null` would not be read back as a name.
  if (valid && node.text != "null") return node.text;
  return tl::unexpected(Fault(ValueFault::Kind::kType, node, Describe()));
}

std::string OptionNameCodec::Describe() const {
  return "an option name of a-z, 0-9 and underscores";
}

std::string OptionNameCodec::Print(const std::string& value) const { return value; }

Parsed<std::string> FileCodec::Parse(const YamlNode& node, const ValueContext& context) const {
  auto name = NameCodec{}.Parse(node, context);
  if (!name) return tl::unexpected(Fault(ValueFault::Kind::kType, node, Describe()));
  const std::filesystem::path path(*name);
  if (context.base_dir.empty() || path.is_absolute()) return name;
  return (context.base_dir / path).lexically_normal().string();
}

std::string FileCodec::Describe() const { return "a file or directory"; }

std::string FileCodec::Print(const std::string& value) const { return QuotedText(value); }

Parsed<AdapterSetting> AdapterCodec::Parse(const YamlNode& node,
                                           const ValueContext& context) const {
  const RealCodec factor{.range = {-kMaxAdapterScale, kMaxAdapterScale}};
  const auto refused = [this](const YamlNode& at) {
    return tl::unexpected(Fault(ValueFault::Kind::kType, at, Describe()));
  };
  YamlNode path = node;
  AdapterSetting setting;
  if (node.kind == YamlNode::Kind::kMap) {
    path = {};
    for (const YamlEntry& entry : node.entries) {
      if (entry.key.text == "path") {
        path = entry.value;
      } else if (entry.key.text == "scale") {
        const auto scale = factor.Parse(entry.value, context);
        if (!scale) return tl::unexpected(scale.error());
        setting.scale = *scale;
      } else {
        return refused(entry.key);
      }
    }
  } else if (const size_t colon = node.text.rfind(':'); colon != std::string::npos) {
    if (const auto scale = ParseDecimal<double>(std::string_view(node.text).substr(colon + 1))) {
      if (!factor.range.Contains(*scale)) return refused(node);
      setting.scale = *scale;
      path.text.resize(colon);
    }
  }
  const auto file = FileCodec{}.Parse(path, context);
  if (!file) return refused(node);
  setting.path = *file;
  return setting;
}

std::string AdapterCodec::Describe() const {
  return fmt::format("FILE, FILE:SCALE or {{path: FILE, scale: SCALE}} with a scale from {} to {}",
                     -kMaxAdapterScale, kMaxAdapterScale);
}

std::string AdapterCodec::Print(const AdapterSetting& value) const {
  return fmt::format("{{path: {}, scale: {}}}", QuotedText(value.path), value.scale);
}

bool LooksLikeModelFile(std::string_view path) {
  return path.starts_with('/') || path.starts_with('.') || path.ends_with(".gguf");
}

Parsed<std::string> ModelCodec::Parse(const YamlNode& node, const ValueContext& context) const {
  auto name = NameCodec{}.Parse(node, context);
  if (!name) return tl::unexpected(Fault(ValueFault::Kind::kType, node, Describe()));
  if (!LooksLikeModelFile(*name)) return name;
  auto file = FileCodec{}.Parse(node, context);
  // "./model" in configs/ became "configs/model", which on its own would be an Ollama name.
  if (file && !LooksLikeModelFile(*file)) *file = "./" + *file;
  return file;
}

std::string ModelCodec::Describe() const {
  return "a file (beginning with / or ., or ending in .gguf) or an Ollama name such as gemma4:e2b";
}

std::string ModelCodec::Print(const std::string& value) const { return QuotedText(value); }

}  // namespace rullama
