// One call of Tokenizer::EncodeSegments: the state that lives as long as the call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace rullama {

class EncodeRun {
 public:
  EncodeRun(const Tokenizer& tokenizer, const EncodeOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  // May throw std::bad_alloc. Errors: see Tokenizer::Encode.
  Result<std::vector<TokenId>> Run(std::span<const TextSegment> segments);

 private:
  // Byte range of the joined text in which markers are recognised.
  struct TrustedRange {
    size_t begin;
    size_t end;
  };
  // An already encoded word: where it was in the text and where its ids are in the output.
  struct CachedWord {
    uint32_t text_begin;
    uint32_t output_begin;
    uint16_t text_length;  // 0: unused
    uint16_t output_length;
  };

  // Error text.size.
  [[nodiscard]] tl::unexpected<Error> TooManyTokens() const;
  [[nodiscard]] bool HasTooMany() const { return output_.size() > options_.max_tokens; }
  Status JoinSegments(std::span<const TextSegment> segments);
  size_t TrustedLength(size_t at);
  bool EncodeText();
  bool EncodeFragment(size_t begin, size_t end);
  size_t EncodeNewlines(size_t begin, size_t end);
  [[nodiscard]] size_t SpaceLength(size_t at, size_t end) const;
  [[nodiscard]] size_t WordEnd(size_t begin, size_t end) const;
  bool EncodeWord(size_t begin, size_t end);
  bool MergeWord(std::string_view word);
  void KeepOneBos();

  const Tokenizer& tokenizer_;
  const EncodeOptions& options_;
  std::string joined_;     // only if there are several segments
  std::string_view text_;  // all segments
  std::vector<TrustedRange> trusted_;
  size_t next_trusted_ = 0;
  std::vector<CachedWord> cache_;  // empty for short texts
  std::vector<TokenId> symbols_;   // of the word at hand
  std::vector<TokenId> output_;
  uint32_t words_ = 0;
};

}  // namespace rullama
