#include "core/constraint/token_trie.h"

#include <algorithm>
#include <optional>

#include "core/base/utf8.h"

namespace rullama::constraint {
namespace {

// A bit for each character set.
constexpr uint32_t kAllSets = (uint32_t{1} << kCharacterSets) - 1;

std::string BytesOfToken(const Tokenizer& tokenizer, TokenId id) {
  const std::string_view text = tokenizer.TokenText(id);
  if (tokenizer.kind(id) == TokenKind::kByte) {
    return std::string(1, static_cast<char>(*ParseByteToken(text)));
  }
  std::string bytes;
  size_t at = 0;
  for (size_t space = text.find(kSpaceSymbol); space != std::string_view::npos;
       space = text.find(kSpaceSymbol, at)) {
    bytes += text.substr(at, space - at);
    bytes += ' ';
    at = space + kSpaceSymbol.size();
  }
  return bytes += text.substr(at);
}

// For each position of a text, the sets (a bit each) whose whole characters make up the rest.
std::vector<uint32_t> WholeRests(std::string_view text) {
  std::vector<uint32_t> whole(text.size() + 1, 0);
  whole[text.size()] = kAllSets;
  for (size_t at = text.size(); at-- > 0;) {
    const size_t length = Utf8SequenceLength(text.substr(at));
    if (length == 0) continue;
    for (size_t set = 0; set < kCharacterSets; ++set) {
      if (MayBegin(static_cast<CharacterSet>(set), static_cast<uint8_t>(text[at]))) {
        whole[at] |= whole[at + length] & uint32_t{1} << set;
      }
    }
  }
  return whole;
}

// The number of characters, if there is nothing but characters of the set.
std::optional<uint32_t> PlainCharacters(CharacterSet set, std::string_view text) {
  uint32_t count = 0;
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0 || !MayBegin(set, static_cast<uint8_t>(text[0]))) return std::nullopt;
    text.remove_prefix(length);
    ++count;
  }
  return count;
}

}  // namespace

std::shared_ptr<const TokenTrie> TokenTrie::Build(const Tokenizer& tokenizer,
                                                  std::span<const std::string_view> markers,
                                                  int64_t vocabulary) {
  auto trie = std::make_shared<TokenTrie>();
  trie->vocabulary_ = vocabulary;
  const auto tokens =
      static_cast<TokenId>(std::min<int64_t>(vocabulary, static_cast<int64_t>(tokenizer.size())));
  trie->text_tokens_.assign(static_cast<size_t>((vocabulary + 31) / 32), 0);
  trie->text_begin_.assign(1, 0);
  std::vector<Text> texts;
  for (TokenId id = 0; id < tokens; ++id) {
    if (tokenizer.IsEndOfGeneration(id)) {
      trie->end_tokens_.push_back(id);
    } else if (tokenizer.kind(id) == TokenKind::kControl) {
      const auto marker = std::ranges::find(markers, tokenizer.TokenText(id));
      const bool is_marker = marker != markers.end();
      const auto symbol = static_cast<Symbol>(kFirstMarker + (marker - markers.begin()));
      trie->AddSpecial(is_marker ? symbol : kOtherSpecial, id);
    } else if (std::string bytes = BytesOfToken(tokenizer, id); !bytes.empty()) {
      AllowToken(trie->text_tokens_, id);
      trie->text_bytes_ += bytes;
      trie->max_bytes_ = std::max(trie->max_bytes_, bytes.size());
      texts.push_back({std::move(bytes), id});
    }
    trie->text_begin_.push_back(static_cast<uint32_t>(trie->text_bytes_.size()));
  }
  std::ranges::stable_sort(texts, {}, &Text::bytes);
  trie->nodes_ = NodesOf(texts);
  trie->AddSlice(CharacterSet::kJsonPlain, texts);
  trie->AddSlice(CharacterSet::kRawPlain, texts);
  return trie;
}

void TokenTrie::AddSpecial(Symbol symbol, TokenId token) {
  auto found = std::ranges::find(specials_, symbol, &std::pair<Symbol, TokenMask>::first);
  if (found == specials_.end()) {
    found = specials_.insert(specials_.end(), {symbol, TokenMask(mask_words(), 0)});
  }
  AllowToken(found->second, token);
}

void TokenTrie::AddSlice(CharacterSet set, std::span<const Text> texts) {
  Slice& slice = slices_[static_cast<size_t>(set)];
  slice.all.assign(mask_words(), 0);
  for (TokenMask& mask : slice.at_most) mask.assign(mask_words(), 0);
  std::vector<Text> long_texts;
  std::vector<Text> others;
  for (const Text& text : texts) {
    const auto characters = PlainCharacters(set, text.bytes);
    if (!characters) {
      others.push_back(text);
      continue;
    }
    AllowToken(slice.all, text.token);
    slice.longest = std::max(slice.longest, *characters);
    if (*characters > Slice::kCounted) long_texts.push_back(text);
    for (size_t most = *characters; most <= Slice::kCounted; ++most) {
      AllowToken(slice.at_most[most], text.token);
    }
  }
  slice.long_tokens = NodesOf(long_texts);
  slice.other_tokens = NodesOf(others);
}

// `texts` are sorted by their bytes.
std::vector<TokenTrie::Node> TokenTrie::NodesOf(std::span<const Text> texts) {
  std::vector<Node> nodes;
  std::vector<size_t> path;  // the nodes of the last text
  const auto close_to = [&](size_t length) {
    for (; path.size() > length; path.pop_back()) {
      nodes[path.back()].size = static_cast<uint32_t>(nodes.size() - path.back());
    }
  };
  std::string_view last;
  for (const Text& text : texts) {
    const std::string_view bytes = text.bytes;
    const auto common = static_cast<size_t>(std::ranges::mismatch(bytes, last).in1 - bytes.begin());
    close_to(std::min(common, bytes.size() - 1));
    for (size_t at = path.size(); at < bytes.size(); ++at) {
      path.push_back(nodes.size());
      nodes.push_back({.byte = static_cast<uint8_t>(bytes[at]),
                       .token_plus_1 = 0,
                       .size = 1,
                       .whole_below = kAllSets,
                       .depth = static_cast<uint32_t>(at)});
    }
    nodes.back().token_plus_1 = static_cast<uint32_t>(text.token + 1) & 0xFFFFFFU;
    const std::vector<uint32_t> whole = WholeRests(bytes);
    for (size_t at = 0; at < path.size(); ++at) {
      nodes[path[at]].whole_below &= whole[at + 1] & kAllSets;
    }
    last = bytes;
  }
  close_to(0);
  nodes.shrink_to_fit();
  return nodes;
}

std::vector<Symbol> TokenTrie::SymbolsOf(TokenId token) const {
  std::vector<Symbol> symbols;
  if (token < 0 || static_cast<size_t>(token) + 1 >= text_begin_.size()) return symbols;
  for (const auto& [symbol, tokens] : specials_) {
    if (IsTokenAllowed(tokens, token)) return {symbol};
  }
  const auto at = static_cast<size_t>(token);
  for (uint32_t i = text_begin_[at]; i < text_begin_[at + 1]; ++i) {
    symbols.push_back(static_cast<uint8_t>(text_bytes_[i]));
  }
  return symbols;
}

size_t TokenTrie::bytes() const {
  size_t nodes = nodes_.size();
  size_t masks = 1;
  for (const Slice& slice : slices_) {
    nodes += slice.long_tokens.size() + slice.other_tokens.size();
    masks += slice.at_most.size() + 1;
  }
  return nodes * sizeof(Node) + masks * mask_words() * sizeof(uint32_t) + text_bytes_.size() +
         text_begin_.size() * sizeof(uint32_t);
}

}  // namespace rullama::constraint
