// Token ids -> text, one token at a time, never splitting a UTF-8 sequence.
//
// Ownership: borrows the tokenizer, which must outlive it. Thread safety: one thread at a time.
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/tokenizer/tokenizer.h"

namespace rullama {

class Detokenizer {
 public:
  // `show_control`: also give the text of control tokens and markers, which readers do not see but
  // parsers of the output need.
  explicit Detokenizer(const Tokenizer& tokenizer, bool show_control = false)
      : tokenizer_(tokenizer), show_control_(show_control) {}

  // The text that `id` completes: always whole UTF-8 sequences. U+2581 becomes a space, bytes that
  // cannot become a sequence U+FFFD. Valid until the next call. Error tokenizer.id (kUsage): no
  // such token.
  Result<std::string_view> Push(TokenId id);

  // Returns the rest at the end: nothing, or U+FFFD for a sequence that was never completed. The
  // detokenizer then is as new.
  std::string_view Flush();

 private:
  void ReleaseComplete();

  const Tokenizer& tokenizer_;
  bool show_control_;
  std::string pending_;   // bytes not yet released: an incomplete sequence
  std::string released_;  // what the last call returned
};

}  // namespace rullama
