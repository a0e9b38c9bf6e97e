// Finds tokens that are matched as whole strings in the raw text (markers, control tokens,
// user-defined tokens such as newline runs and HTML tags): a trie over their bytes.
//
// Thread safety: immutable once filled.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/tokenizer/vocabulary.h"

namespace rullama::tokenizer_internal {

class SpecialMatcher {
 public:
  struct Match {
    TokenId id = kNoToken;
    size_t length = 0;
  };

  // `trusted_only`: matched only where special tokens are parsed, never in user text. The first
  // token added for a text keeps it.
  void Add(std::string_view text, TokenId id, bool trusted_only);

  // The longest token that starts at text[0]; tokens marked trusted_only have to end within the
  // first `trusted_length` bytes. id is kNoToken if there is none.
  [[nodiscard]] Match Longest(std::string_view text, size_t trusted_length) const;

  // Whether any token starts with this byte.
  [[nodiscard]] bool CanStart(char byte) const { return root_[static_cast<uint8_t>(byte)] != 0; }

 private:
  // Children form a list of siblings: a node rarely has more than a few dozen.
  struct Node {
    uint32_t first_child = 0;
    uint32_t next_sibling = 0;
    TokenId id = kNoToken;
    char byte = 0;
    bool trusted_only = false;
  };
  [[nodiscard]] uint32_t Child(uint32_t node, char byte) const;

  std::array<uint32_t, 256> root_{};                // first byte -> node, 0 if none
  std::vector<Node> nodes_ = std::vector<Node>(1);  // node 0 is never used: 0 means "no node"
};

}  // namespace rullama::tokenizer_internal
