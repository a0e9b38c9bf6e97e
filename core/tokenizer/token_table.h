// Text -> id of every token: a flat open-addressing table of 32-bit ids over borrowed strings.
//
// Ownership: borrows the tokens (the vector and the bytes). Thread safety: immutable after Build.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include "core/tokenizer/hash.h"
#include "core/tokenizer/vocabulary.h"

namespace rullama::tokenizer_internal {

// Arrays from calloc: the kernel hands out zeroed pages lazily, where value-initialisation would
// touch megabytes before the first insertion.
struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};
template <typename T>
using ZeroedArray = std::unique_ptr<T[], FreeDeleter>;
// Throws std::bad_alloc; callers of Build catch it.
template <typename T>
ZeroedArray<T> MakeZeroedArray(size_t count) {
  void* memory = std::calloc(count, sizeof(T));
  if (memory == nullptr) throw std::bad_alloc();
  return ZeroedArray<T>(static_cast<T*>(memory));
}

class TokenTable {
 public:
  // If texts are equal, the lowest id is found; the empty text never is.
  void Build(std::span<const std::string_view> tokens);

  // The id of `text`, or kNoToken. Find with a hash lets callers hash first, Prefetch, and look up
  // a batch later; `hash` must be HashBytes(text).
  [[nodiscard]] TokenId Find(std::string_view text) const { return Find(text, HashBytes(text)); }
  [[nodiscard]] TokenId Find(std::string_view text, uint64_t hash) const {
    for (auto at = static_cast<size_t>(hash & mask_);; at = static_cast<size_t>((at + 1) & mask_)) {
      const uint64_t slot = slots_[at];
      if (slot == 0) return kNoToken;
      if ((slot >> 32) != (hash >> 32)) continue;
      const auto id = static_cast<TokenId>(static_cast<uint32_t>(slot) - 1);
      if (tokens_[static_cast<size_t>(id)] == text) return id;
    }
  }
  // A faster look-up for texts that are expected to be tokens. It does not touch the text, which
  // would cost two cache misses. Every token is found; a text that is not a token is taken for one
  // only if it shares 32 hash bits with a neighbour in the table.
  [[nodiscard]] TokenId FindExpected(std::string_view text, uint64_t hash) const {
    if (has_twins_) return Find(text, hash);
    for (auto at = static_cast<size_t>(hash & mask_);; at = static_cast<size_t>((at + 1) & mask_)) {
      const uint64_t slot = slots_[at];
      if (slot == 0) return kNoToken;
      if ((slot >> 32) == (hash >> 32)) {
        return static_cast<TokenId>(static_cast<uint32_t>(slot) - 1);
      }
    }
  }
  // Tokens that are never found, because a lower id has the same text.
  [[nodiscard]] size_t duplicates() const { return duplicates_; }
  void Prefetch(uint64_t hash) const {
    __builtin_prefetch(&slots_[static_cast<size_t>(hash & mask_)]);
  }

 private:
  void Insert(TokenId id, uint64_t hash);

  std::span<const std::string_view> tokens_;
  // (upper half of the hash) << 32 | (id + 1); 0 is empty. At most half of the slots are used.
  ZeroedArray<uint64_t> slots_;
  uint64_t mask_ = 0;
  // Whether two different tokens with the same upper half of the hash met while probing.
  bool has_twins_ = false;
  size_t duplicates_ = 0;
};

}  // namespace rullama::tokenizer_internal
