#include "core/config/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <sstream>
#include <utility>

#include "core/base/utf8.h"

namespace rullama {
namespace {

struct Position {
  int line = 1;
  int column = 1;
};

Position PositionOfOffset(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const size_t newline = before.rfind('\n');
  const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
  return {.line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')),
          .column = 1 + static_cast<int>(offset - line_start)};
}

template <typename... Args>
Error MakePositionedError(std::string_view id, std::string_view source, Position at,
                          fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorKind::kUsage, std::string(id),
               fmt::format("{}: {}", FormatPosition(source, at.line, at.column),
                           fmt::format(format, std::forward<Args>(args)...))};
}

bool IsForbiddenControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7f;
}

// The first tab in an indentation. Lines of a block text count too: one rule is easier to explain.
std::optional<size_t> FindTabIndent(std::string_view text) {
  bool in_indent = true;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_indent && text[i] == '\t') return i;
    const bool line_break = text[i] == '\n' || text[i] == '\r';
    in_indent = line_break || (in_indent && text[i] == ' ');
  }
  return std::nullopt;
}

// Checks the text before yaml-cpp sees it. yaml-cpp guesses UTF-16 and UTF-32, and it takes the
// byte 0x04 for the end of the file, so that the rest would be ignored in silence.
Status CheckText(std::string_view text, std::string_view source) {
  if (text.size() > kMaxYamlBytes) {
    return MakeError(ErrorKind::kUsage, "config.limit",
                     "{}: the file has {} bytes, a configuration has at most {}", source,
                     text.size(), kMaxYamlBytes);
  }
  if (const auto offset = FindInvalidUtf8(text)) {
    return tl::unexpected(MakePositionedError("config.encoding", source,
                                              PositionOfOffset(text, *offset),
                                              "not UTF-8; save the file as UTF-8"));
  }
  const auto control = std::find_if(text.begin(), text.end(), IsForbiddenControl);
  if (control != text.end()) {
    const auto offset = static_cast<size_t>(control - text.begin());
    return tl::unexpected(MakePositionedError(
        "config.encoding", source, PositionOfOffset(text, offset),
        "control character 0x{:02x}; write it as an escape in a double-quoted text",
        static_cast<unsigned>(*control)));
  }
  if (const auto tab = FindTabIndent(text)) {
    return tl::unexpected(MakePositionedError("config.syntax", source, PositionOfOffset(text, *tab),
                                              "tab in the indentation; indent with spaces"));
  }
  return OkStatus();
}

// Builds the tree from yaml-cpp's events. The first thing that is not allowed is kept as the error;
// whatever follows is ignored, so memory stays bounded.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view source) : source_(source) {}

  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] YamlNode TakeRoot() && { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      Fail("config.syntax", mark, "a second document begins; a configuration is one document");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (auto node = NewNode(YamlNode::Kind::kNull, mark, "", anchor)) Attach(*std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    Fail("config.limit", mark, "aliases (*name) are not allowed; repeat the value");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    auto node = NewNode(YamlNode::Kind::kScalar, mark, tag, anchor);
    if (!node) return;
    // yaml-cpp turns the escapes \N and \_ into one byte of Latin-1.
    if (FindInvalidUtf8(value)) {
      Fail("config.encoding", mark,
           "the escapes \\N and \\_ are not supported; write \\u0085 or \\u00a0");
      return;
    }
    node->quoted = tag == "!";
    node->text = value;
    Attach(*std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(YamlNode::Kind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct OpenNode {
    YamlNode node;
    std::optional<YamlNode> key;  // of a map: waits for its value
  };

  template <typename... Args>
  void Fail(std::string_view id, const YAML::Mark& mark, fmt::format_string<Args...> format,
            Args&&... args) {
    FailAt(id, {.line = mark.line + 1, .column = mark.column + 1}, format,
           std::forward<Args>(args)...);
  }

  template <typename... Args>
  void FailAt(std::string_view id, Position at, fmt::format_string<Args...> format,
              Args&&... args) {
    if (error_) return;
    error_ = MakePositionedError(id, source_, at, format, std::forward<Args>(args)...);
    open_.clear();
  }

  // A node, or nothing if this one or an earlier one is not allowed.
  std::optional<YamlNode> NewNode(YamlNode::Kind kind, const YAML::Mark& mark,
                                  const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) {
      Fail("config.limit", mark, "anchors (&name) are not allowed; repeat the value");
    } else if (!tag.empty() && tag != "?" && tag != "!") {
      Fail("config.syntax", mark, "tags (!name) are not allowed");
    } else if (++nodes_ > kMaxYamlNodes) {
      Fail("config.limit", mark, "more than {} values in the file", kMaxYamlNodes);
    }
    if (error_) return std::nullopt;
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  void Open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    if (open_.size() >= kMaxYamlDepth) {
      Fail("config.limit", mark, "nested deeper than {} levels", kMaxYamlDepth);
    }
    auto node = NewNode(kind, mark, tag, anchor);
    if (node) open_.push_back({.node = *std::move(node), .key = {}});
  }

  void Close() {
    if (error_) return;
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    CheckDuplicates(node);
    if (!error_) Attach(std::move(node));
  }

  void Attach(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    OpenNode& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::kSequence) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.key) {
      parent.node.entries.push_back({.key = *std::move(parent.key), .value = std::move(node)});
      parent.key.reset();
    } else if (node.kind == YamlNode::Kind::kScalar) {
      parent.key = std::move(node);
    } else {
      FailAt("config.syntax", {.line = node.line, .column = node.column},
             "a key must be a name, found {}",
             node.kind == YamlNode::Kind::kNull ? "nothing" : "a list or block");
    }
  }

  // Sorting keeps a file of a hundred thousand keys from costing its square.
  void CheckDuplicates(const YamlNode& map) {
    std::vector<const YamlNode*> keys;
    keys.reserve(map.entries.size());
    for (const YamlEntry& entry : map.entries) keys.push_back(&entry.key);
    std::stable_sort(keys.begin(), keys.end(),
                     [](const YamlNode* a, const YamlNode* b) { return a->text < b->text; });
    const auto twice =
        std::adjacent_find(keys.begin(), keys.end(),
                           [](const YamlNode* a, const YamlNode* b) { return a->text == b->text; });
    if (twice == keys.end()) return;
    const YamlNode& first = **twice;
    const YamlNode& second = **(twice + 1);
    FailAt("config.duplicate_key", {.line = second.line, .column = second.column},
           "key {} is given twice, first at line {}; remove one", QuoteForMessage(second.text),
           first.line);
  }

  std::string_view source_;
  std::vector<OpenNode> open_;
  YamlNode root_;
  std::optional<Error> error_;
  size_t nodes_ = 0;
  int documents_ = 0;
};

}  // namespace

Result<YamlNode> ParseYamlTree(std::string_view text, std::string_view source) {
  RL_RETURN_IF_ERROR(CheckText(text, source));
  TreeBuilder builder(source);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (!builder.error() && parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    // The builder's own finding comes first in the file and says more.
    if (!builder.error()) {
      const Position at = e.mark.is_null()
                              ? Position{}
                              : Position{.line = e.mark.line + 1, .column = e.mark.column + 1};
      return tl::unexpected(
          MakePositionedError("config.syntax", source, at, "not valid YAML: {}", e.msg));
    }
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorKind::kOutOfMemory, "config.memory", "{}: out of memory while parsing",
                     source);
  } catch (const std::exception& e) {
    return MakeError(ErrorKind::kUsage, "config.syntax", "{}: not valid YAML: {}", source,
                     e.what());
  }
  if (builder.error()) return tl::unexpected(*builder.error());
  return std::move(builder).TakeRoot();
}

std::string QuoteForMessage(std::string_view text) {
  constexpr size_t kMaxShown = 48;  // a message stays on one line
  std::string shown = "'";
  size_t i = 0;
  while (i < text.size() && i < kMaxShown) {
    const size_t length = Utf8SequenceLength(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (length == 0 || byte < 0x20 || byte == 0x7f) {
      shown += fmt::format("\\x{:02x}", byte);
      ++i;
    } else {
      shown += text.substr(i, length);
      i += length;
    }
  }
  shown += i < text.size() ? "...'" : "'";
  return shown;
}

std::string FormatPosition(std::string_view source, int line, int column) {
  if (line == 0) return std::string(source);
  return fmt::format("{}:{}:{}", source, line, column);
}

}  // namespace rullama
