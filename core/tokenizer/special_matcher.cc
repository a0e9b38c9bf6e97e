#include "core/tokenizer/special_matcher.h"

namespace rullama::tokenizer_internal {

uint32_t SpecialMatcher::Child(uint32_t node, char byte) const {
  uint32_t child = nodes_[node].first_child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

void SpecialMatcher::Add(std::string_view text, TokenId id, bool trusted_only) {
  if (text.empty()) return;
  uint32_t& root = root_[static_cast<uint8_t>(text[0])];
  if (root == 0) {
    root = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back({.byte = text[0]});
  }
  uint32_t node = root;
  for (const char byte : text.substr(1)) {
    uint32_t child = Child(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.next_sibling = nodes_[node].first_child, .byte = byte});
      nodes_[node].first_child = child;
    }
    node = child;
  }
  if (nodes_[node].id != kNoToken) return;
  nodes_[node].id = id;
  nodes_[node].trusted_only = trusted_only;
}

SpecialMatcher::Match SpecialMatcher::Longest(std::string_view text, size_t trusted_length) const {
  Match best;
  if (text.empty()) return best;
  uint32_t node = root_[static_cast<uint8_t>(text[0])];
  for (size_t length = 1; node != 0; ++length) {
    const bool allowed = !nodes_[node].trusted_only || length <= trusted_length;
    if (nodes_[node].id != kNoToken && allowed) best = {nodes_[node].id, length};
    if (length == text.size()) break;
    node = Child(node, text[length]);
  }
  return best;
}

}  // namespace rullama::tokenizer_internal
