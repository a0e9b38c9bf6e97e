#include "core/constraint/pattern_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "core/base/printable.h"
#include "core/base/utf8.h"
#include "core/constraint/grammar.h"

namespace rullama::constraint {
namespace {

constexpr uint32_t kMaxCodePoint = 0x10FFFF;
constexpr int kMaxGroups = 64;  // inside one another
constexpr size_t kMaxPatternBytes = 16384;

using Ranges = std::vector<CharacterRange>;

const Ranges& Digits() {
  static const Ranges kRanges = {{'0', '9'}};
  return kRanges;
}
const Ranges& WordCharacters() {
  static const Ranges kRanges = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return kRanges;
}
const Ranges& Spaces() {
  static const Ranges kRanges = {
      {0x09, 0x0D},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
      {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return kRanges;
}
const Ranges& LineEnds() {
  static const Ranges kRanges = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return kRanges;
}

// Ascending and apart.
Ranges Normal(Ranges ranges) {
  std::ranges::sort(ranges, {}, &CharacterRange::first);
  Ranges result;
  for (const CharacterRange& range : ranges) {
    if (!result.empty() && range.first <= result.back().last + 1) {
      result.back().last = std::max(result.back().last, range.last);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

// All characters but those of normal ranges.
Ranges Complement(const Ranges& ranges) {
  Ranges result;
  uint32_t next = 0;
  for (const CharacterRange& range : ranges) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) result.push_back({next, kMaxCodePoint});
  return result;
}

PatternNode SetOf(Ranges ranges) {
  PatternNode node;
  node.kind = PatternNode::Kind::kSet;
  node.ranges = std::move(ranges);
  return node;
}

PatternNode AnchorOf(PatternNode::Kind kind) {
  PatternNode node;
  node.kind = kind;
  return node;
}

bool IsAnchor(const PatternNode& node) {
  return node.kind == PatternNode::Kind::kBegin || node.kind == PatternNode::Kind::kEnd;
}

class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : pattern_(pattern) {}

  Result<PatternNode> Read() {
    RL_ASSIGN_OR_RETURN(PatternNode node, Alternatives(0));
    if (at_ < pattern_.size()) return Invalid("there is a ) too many");
    return node;
  }

 private:
  tl::unexpected<Error> Invalid(std::string_view what) const {
    return MakeError(ErrorKind::kUsage, "schema.invalid",
                     "pattern '{}': {} at byte {}; write a regular expression of ECMA-262",
                     Printable(pattern_, 64), what, at_);
  }
  tl::unexpected<Error> Unsupported(std::string_view what) const {
    return MakeError(ErrorKind::kUsage, "schema.unsupported",
                     "pattern '{}': {} at byte {}, which is not supported; write it without",
                     Printable(pattern_, 64), what, at_);
  }

  [[nodiscard]] bool Has() const { return at_ < pattern_.size(); }
  [[nodiscard]] char Peek() const { return pattern_[at_]; }
  bool Take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  // The next character, which exists; the pattern is UTF-8.
  uint32_t Character() {
    const std::string_view rest = pattern_.substr(at_);
    const size_t length = std::max<size_t>(Utf8SequenceLength(rest), 1);
    at_ += length;
    const auto lead = static_cast<uint8_t>(rest[0]);
    if (length == 1) return lead;
    uint32_t character = lead & (0x7FU >> length);
    for (size_t i = 1; i < length; ++i) {
      character = character << 6U | (static_cast<uint8_t>(rest[i]) & 0x3FU);
    }
    return character;
  }

  Result<PatternNode> Alternatives(int depth);
  Result<PatternNode> Sequence(int depth);
  Result<PatternNode> Atom(int depth);
  Result<PatternNode> Group(int depth);
  Result<PatternNode> Quantified(PatternNode atom);
  std::optional<std::pair<uint32_t, uint32_t>> Braces();
  Result<PatternNode> Class();
  // A character of a class, or the ranges of an escape such as \d.
  Result<Ranges> ClassMember();
  // Parses the escape after a backslash.
  Result<Ranges> Escape(bool in_class);
  Result<uint32_t> Hex(size_t digits);
  Result<uint32_t> UnicodeEscape();

  std::string_view pattern_;
  size_t at_ = 0;
};

Result<PatternNode> PatternReader::Alternatives(int depth) {
  if (depth > kMaxGroups) return Unsupported("groups are nested too deep");
  PatternNode node;
  node.kind = PatternNode::Kind::kAlternate;
  do {
    RL_ASSIGN_OR_RETURN(PatternNode branch, Sequence(depth));
    node.children.push_back(std::move(branch));
  } while (Take("|"));
  if (node.children.size() > 1) return node;
  PatternNode only = std::move(node.children.front());
  return only;
}

Result<PatternNode> PatternReader::Sequence(int depth) {
  PatternNode node;
  while (Has() && Peek() != '|' && Peek() != ')') {
    RL_ASSIGN_OR_RETURN(PatternNode atom, Atom(depth));
    RL_ASSIGN_OR_RETURN(atom, Quantified(std::move(atom)));
    // Anchors take no room, so a second one changes nothing.
    const bool again =
        IsAnchor(atom) && !node.children.empty() && node.children.back().kind == atom.kind;
    if (!again) node.children.push_back(std::move(atom));
  }
  return node;
}

Result<PatternNode> PatternReader::Atom(int depth) {
  if (Take("(")) return Group(depth);
  if (Take("[")) return Class();
  if (Take("^")) return AnchorOf(PatternNode::Kind::kBegin);
  if (Take("$")) return AnchorOf(PatternNode::Kind::kEnd);
  if (Take(".")) return SetOf(Complement(LineEnds()));
  if (Take("\\")) {
    RL_ASSIGN_OR_RETURN(Ranges ranges, Escape(/*in_class=*/false));
    return SetOf(std::move(ranges));
  }
  if (Peek() == '*' || Peek() == '+' || Peek() == '?') return Invalid("nothing to repeat");
  const uint32_t character = Character();
  return SetOf({{character, character}});
}

Result<PatternNode> PatternReader::Group(int depth) {
  for (const std::string_view look : {"?=", "?!", "?<=", "?<!"}) {
    if (pattern_.substr(at_).starts_with(look)) return Unsupported("look-around");
  }
  if (Take("?:")) {
    // No capture.
  } else if (Take("?<")) {
    const size_t end = pattern_.find('>', at_);
    if (end == std::string_view::npos) return Invalid("the name of a group has no end");
    at_ = end + 1;
  } else if (Has() && Peek() == '?') {
    return Unsupported("a group with flags");
  }
  RL_ASSIGN_OR_RETURN(PatternNode node, Alternatives(depth + 1));
  if (!Take(")")) return Invalid("a ) is missing");
  return node;
}

Result<PatternNode> PatternReader::Quantified(PatternNode atom) {
  std::optional<std::pair<uint32_t, uint32_t>> bounds;
  if (Take("*")) {
    bounds = {0, kUnlimited};
  } else if (Take("+")) {
    bounds = {1, kUnlimited};
  } else if (Take("?")) {
    bounds = {0, 1};
  } else {
    bounds = Braces();
  }
  if (!bounds) return atom;
  if (IsAnchor(atom)) return Unsupported("a repeated anchor");
  if (bounds->first > bounds->second) return Invalid("a range of repeats is empty");
  Take("?");  // a lazy quantifier finds the same texts
  if (Has() && (Peek() == '*' || Peek() == '+' || Peek() == '?')) {
    return Invalid("nothing to repeat");
  }
  PatternNode node;
  node.kind = PatternNode::Kind::kRepeat;
  node.min = bounds->first;
  node.max = bounds->second;
  node.children.push_back(std::move(atom));
  return node;
}

// {n}, {n,} or {n,m}; anything else in braces is text.
std::optional<std::pair<uint32_t, uint32_t>> PatternReader::Braces() {
  if (!Has() || Peek() != '{') return std::nullopt;
  const std::string_view rest = pattern_.substr(at_ + 1);
  const char* const end = rest.data() + rest.size();
  uint32_t min = 0;
  auto number = std::from_chars(rest.data(), end, min);
  if (number.ptr == rest.data()) return std::nullopt;
  // A number that does not fit is above every limit.
  if (number.ec == std::errc::result_out_of_range) min = kUnlimited - 1;
  uint32_t max = min;
  if (number.ptr < end && *number.ptr == ',') {
    const char* const begin = number.ptr + 1;
    max = kUnlimited;
    number = std::from_chars(begin, end, max);
    if (number.ptr == begin) max = kUnlimited;
    if (number.ec == std::errc::result_out_of_range) max = kUnlimited - 1;
  }
  if (number.ptr == end || *number.ptr != '}') return std::nullopt;
  at_ += static_cast<size_t>(number.ptr + 1 - rest.data()) + 1;
  return std::pair(min, max);
}

Result<PatternNode> PatternReader::Class() {
  const bool negated = Take("^");
  Ranges ranges;
  while (!Take("]")) {
    if (!Has()) return Invalid("a ] is missing");
    RL_ASSIGN_OR_RETURN(const Ranges first, ClassMember());
    const bool is_range = pattern_.substr(at_).starts_with('-') && at_ + 1 < pattern_.size() &&
                          pattern_[at_ + 1] != ']';
    if (!is_range) {
      ranges.insert(ranges.end(), first.begin(), first.end());
      continue;
    }
    Take("-");
    RL_ASSIGN_OR_RETURN(const Ranges last, ClassMember());
    const auto is_one = [](const Ranges& r) { return r.size() == 1 && r[0].first == r[0].last; };
    if (!is_one(first) || !is_one(last) || first[0].first > last[0].first) {
      return Invalid("a range of characters is empty");
    }
    ranges.push_back({first[0].first, last[0].first});
  }
  ranges = Normal(std::move(ranges));
  return SetOf(negated ? Complement(ranges) : ranges);
}

Result<Ranges> PatternReader::ClassMember() {
  if (Take("\\")) return Escape(/*in_class=*/true);
  const uint32_t character = Character();
  return Ranges{{character, character}};
}

Result<Ranges> PatternReader::Escape(bool in_class) {
  if (!Has()) return Invalid("a backslash ends the pattern");
  const auto one = [](uint32_t character) { return Ranges{{character, character}}; };
  const char c = Peek();
  if (c >= '1' && c <= '9' && !in_class) return Unsupported("a back-reference");
  if (c == 'b' && in_class) {
    ++at_;
    return one('\b');
  }
  switch (c) {
    case 'k':
      return Unsupported("a back-reference");
    case 'b':
    case 'B':
      return Unsupported("a word boundary");
    case 'p':
    case 'P':
      return Unsupported("a property of characters");
    default:
      break;
  }
  ++at_;
  switch (c) {
    case 'd':
      return Digits();
    case 'D':
      return Complement(Digits());
    case 'w':
      return WordCharacters();
    case 'W':
      return Complement(WordCharacters());
    case 's':
      return Spaces();
    case 'S':
      return Complement(Spaces());
    case 'n':
      return one('\n');
    case 'r':
      return one('\r');
    case 't':
      return one('\t');
    case 'f':
      return one('\f');
    case 'v':
      return one('\v');
    case '0':
      return one(0);
    case 'c': {
      if (!Has()) return Invalid("\\c has no letter");
      return one(Character() % 32);
    }
    case 'x': {
      RL_ASSIGN_OR_RETURN(const uint32_t character, Hex(2));
      return one(character);
    }
    case 'u': {
      RL_ASSIGN_OR_RETURN(const uint32_t character, UnicodeEscape());
      return one(character);
    }
    default:
      break;
  }
  const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  const bool digit = c >= '0' && c <= '9';
  if (letter || digit) return Invalid("an unknown escape");
  --at_;
  return one(Character());
}

Result<uint32_t> PatternReader::Hex(size_t digits) {
  const std::string_view text = pattern_.substr(at_, digits);
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != digits || error != std::errc() || end != text.data() + text.size()) {
    return Invalid("an escape lacks hexadecimal digits");
  }
  at_ += digits;
  return value;
}

// \uXXXX, a surrogate pair of two, or \u{X...}.
Result<uint32_t> PatternReader::UnicodeEscape() {
  if (Take("{")) {
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos || end == at_ || end - at_ > 6) {
      return Invalid("an escape lacks hexadecimal digits");
    }
    RL_ASSIGN_OR_RETURN(const uint32_t value, Hex(end - at_));
    ++at_;
    if (value > kMaxCodePoint) return Invalid("no such character");
    return value;
  }
  RL_ASSIGN_OR_RETURN(const uint32_t value, Hex(4));
  const bool high = value >= 0xD800 && value < 0xDC00;
  if (!high || !Take("\\u")) return value;
  RL_ASSIGN_OR_RETURN(const uint32_t low, Hex(4));
  if (low < 0xDC00 || low > 0xDFFF) return Invalid("half of a surrogate pair");
  return 0x10000 + ((value - 0xD800) << 10U) + (low - 0xDC00);
}

}  // namespace

Result<PatternNode> ParsePattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return MakeError(ErrorKind::kUsage, "schema.too_large",
                     "a pattern has {} bytes, expected at most {}", pattern.size(),
                     kMaxPatternBytes);
  }
  return PatternReader(pattern).Read();
}

}  // namespace rullama::constraint
