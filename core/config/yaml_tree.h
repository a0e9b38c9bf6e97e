// YAML text as a small tree of nodes with positions. yaml_tree.cc is the only file that includes
// yaml-cpp, and no exception of yaml-cpp leaves it.
//
// Only what a configuration needs is accepted: one document, no anchors, aliases or tags, plain or
// quoted keys, no tab in an indentation. Limits keep hostile files cheap.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace rullama {

inline constexpr size_t kMaxYamlBytes = size_t{1} << 20;
inline constexpr size_t kMaxYamlDepth = 32;
// A megabyte of "[,,,]" would otherwise become half a gigabyte of nodes.
inline constexpr size_t kMaxYamlNodes = size_t{1} << 16;

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  bool quoted = false;  // a scalar that can only be text: "5", '5' or a block
  std::string text;     // of a scalar
  std::vector<YamlNode> items;
  std::vector<YamlEntry> entries;
  int line = 0;    // 1-based; 0 = not from a file
  int column = 0;  // 1-based, in bytes
};

struct YamlEntry {
  YamlNode key;  // a scalar
  YamlNode value;
};

// A parsed document; an empty one is a kNull node. `source` names the text in messages, which begin
// with "source:line:column: ".
// Errors (kUsage): config.limit, config.encoding, config.syntax, config.duplicate_key.
Result<YamlNode> ParseYamlTree(std::string_view text, std::string_view source);

// `text` in single quotes for a message: shortened, control characters escaped.
std::string QuoteForMessage(std::string_view text);

// "source:line:column", or just "source" for a node that did not come from a file.
std::string FormatPosition(std::string_view source, int line, int column);

}  // namespace rullama
