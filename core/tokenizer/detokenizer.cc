#include "core/tokenizer/detokenizer.h"

#include "core/base/utf8.h"

namespace rullama {
namespace {
constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD
}  // namespace

Result<std::string_view> Detokenizer::Push(TokenId id) {
  released_.clear();
  if (!tokenizer_.Contains(id)) {
    return MakeError(ErrorKind::kUsage, "tokenizer.id",
                     "token id is {}, but the vocabulary has tokens 0 to {}", id,
                     tokenizer_.size() - 1);
  }
  if (show_control_ || tokenizer_.kind(id) != TokenKind::kControl) {
    tokenizer_.AppendBytes(id, pending_);
  }
  ReleaseComplete();
  return released_;
}

std::string_view Detokenizer::Flush() {
  released_.clear();
  if (!pending_.empty()) released_ = kReplacementCharacter;
  pending_.clear();
  return released_;
}

void Detokenizer::ReleaseComplete() {
  size_t at = 0;
  while (at < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(at);
    bool incomplete = false;
    const size_t length = Utf8SequenceLength(rest, &incomplete);
    if (incomplete) break;
    released_ += length == 0 ? kReplacementCharacter : rest.substr(0, length);
    at += std::max<size_t>(length, 1);
  }
  pending_.erase(0, at);
}

}  // namespace rullama
