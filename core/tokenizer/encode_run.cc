#include "core/tokenizer/encode_run.h"

#include <limits>
#include <new>
#include <optional>

#include "core/base/utf8.h"
#include "core/tokenizer/bpe.h"

namespace rullama {
namespace {

using tokenizer_internal::HashBytes;
using tokenizer_internal::LoadWord;

// Positions in the text are 32-bit in the merge queue and the word cache.
constexpr size_t kMaxTextBytes = std::numeric_limits<uint32_t>::max() - 1;
// A direct-mapped cache of words; 8,192 entries of 12 bytes hold most of English and fit in L2.
constexpr size_t kCacheEntries = 8192;
// Clearing the cache costs more than it saves on texts shorter than this.
constexpr size_t kMinCachedText = 4096;
// Longer words repeat too rarely to be worth a slot.
constexpr size_t kMaxCachedWord = 64;
// Words between two looks at the stop token.
constexpr uint32_t kStopInterval = 1 << 12;
// Average bytes per token in English is about 4.5; used to reserve the output.
constexpr size_t kBytesPerToken = 4;

// FindInvalidUtf8 with a fast path over ASCII, eight bytes at a time.
std::optional<size_t> FirstInvalidByte(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  for (size_t at = 0; at < text.size();) {
    if (text.size() - at >= 8 && (LoadWord<uint64_t>(text.data() + at) & kHighBits) == 0) {
      at += 8;
      continue;
    }
    const size_t length = Utf8SequenceLength(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<TokenId>> EncodeRun::Run(std::span<const TextSegment> segments) {
  RL_RETURN_IF_ERROR(JoinSegments(segments));
  if (const auto at = FirstInvalidByte(text_)) {
    return MakeError(ErrorKind::kUsage, "text.utf8",
                     "the text is not valid UTF-8 at byte {} (found 0x{:02X}); convert it to UTF-8",
                     *at, static_cast<uint8_t>(text_[*at]));
  }
  // No token stands for more bytes than the longest one has.
  if (text_.size() / tokenizer_.longest_token_ > options_.max_tokens) return TooManyTokens();
  output_.reserve(std::min(text_.size() / kBytesPerToken, options_.max_tokens) + 2);
  if (text_.size() >= kMinCachedText) cache_.resize(kCacheEntries);
  const bool with_bos = options_.add_bos && tokenizer_.bos_id_;
  if (with_bos) output_.push_back(*tokenizer_.bos_id_);
  if (!EncodeText()) {
    if (HasTooMany()) return TooManyTokens();
    return MakeError(ErrorKind::kRuntime, "tokenizer.cancelled", "encoding the text was cancelled");
  }
  if (with_bos) KeepOneBos();
  if (HasTooMany()) return TooManyTokens();
  return std::move(output_);
}

tl::unexpected<Error> EncodeRun::TooManyTokens() const {
  return MakeError(ErrorKind::kUsage, "text.size",
                   "the text has {} bytes and more than {} tokens, expected at most those; "
                   "shorten it",
                   text_.size(), options_.max_tokens);
}

Status EncodeRun::JoinSegments(std::span<const TextSegment> segments) {
  size_t size = 0;
  for (const TextSegment& segment : segments) {
    if (segment.text.size() > kMaxTextBytes - size) {
      return MakeError(ErrorKind::kUsage, "text.size",
                       "the text is longer than {} bytes; split it into parts", kMaxTextBytes);
    }
    if (segment.parse_special) trusted_.push_back({size, size + segment.text.size()});
    size += segment.text.size();
  }
  if (segments.size() == 1) {
    text_ = segments[0].text;
    return OkStatus();
  }
  joined_.reserve(size);
  for (const TextSegment& segment : segments) joined_ += segment.text;
  text_ = joined_;
  return OkStatus();
}

// Returns the number of bytes from `at` on that belong to one stretch in which markers are
// recognised. Calls come with ascending positions.
size_t EncodeRun::TrustedLength(size_t at) {
  while (next_trusted_ < trusted_.size() && trusted_[next_trusted_].end <= at) ++next_trusted_;
  if (next_trusted_ == trusted_.size() || at < trusted_[next_trusted_].begin) return 0;
  return trusted_[next_trusted_].end - at;
}

bool EncodeRun::EncodeText() {
  size_t fragment = 0;
  for (size_t at = 0; at < text_.size();) {
    if (!tokenizer_.special_.CanStart(text_[at])) {
      ++at;
      continue;
    }
    const auto match = tokenizer_.special_.Longest(text_.substr(at), TrustedLength(at));
    if (match.id == kNoToken) {
      ++at;
      continue;
    }
    if (!EncodeFragment(fragment, at)) return false;
    output_.push_back(match.id);
    at += match.length;
    fragment = at;
  }
  return EncodeFragment(fragment, text_.size());
}

// Text without special tokens. Cutting it into words and runs of newlines does not change the
// result: no merge crosses the cuts.
bool EncodeRun::EncodeFragment(size_t begin, size_t end) {
  while (begin < end) {
    if (text_[begin] == '\n') {
      begin = EncodeNewlines(begin, end);
      continue;
    }
    const size_t word_end = WordEnd(begin, end);
    if (!EncodeWord(begin, word_end)) return false;
    begin = word_end;
  }
  return true;
}

// A run of newlines as the longest tokens that fit. Returns where it ends.
size_t EncodeRun::EncodeNewlines(size_t begin, size_t end) {
  const size_t stop = std::min(text_.find_first_not_of('\n', begin), end);
  const auto& run_ids = tokenizer_.newline_run_ids_;
  for (size_t left = stop - begin; left > 0;) {
    size_t take = std::min(left, run_ids.size() - 1);
    while (take > 0 && run_ids[take] == kNoToken) --take;
    output_.push_back(take > 0 ? run_ids[take] : tokenizer_.byte_ids_['\n']);
    left -= std::max<size_t>(take, 1);
  }
  return stop;
}

// Length of the space, or of the symbol that stands for one, at `at`; 0 if there is neither.
size_t EncodeRun::SpaceLength(size_t at, size_t end) const {
  if (text_[at] == ' ') return 1;
  if (text_[at] != kSpaceSymbol[0]) return 0;
  return text_.substr(at, end - at).starts_with(kSpaceSymbol) ? kSpaceSymbol.size() : 0;
}

// A word is a run of spaces and what follows up to the next space.
size_t EncodeRun::WordEnd(size_t begin, size_t end) const {
  bool after_space = true;
  for (size_t at = begin; at < end;) {
    if (text_[at] == '\n') return at;
    const size_t space = SpaceLength(at, end);
    if (space != 0 && !after_space &&
        !tokenizer_.joins_following_space_[static_cast<uint8_t>(text_[at - 1])]) {
      return at;
    }
    after_space = space != 0;
    at += after_space ? space : 1;
  }
  return end;
}

bool EncodeRun::EncodeWord(size_t begin, size_t end) {
  if (HasTooMany()) return false;
  if (++words_ % kStopInterval == 0 && options_.stop.stop_requested()) return false;
  const std::string_view word = text_.substr(begin, end - begin);
  if (cache_.empty() || word.size() > kMaxCachedWord) return MergeWord(word);

  CachedWord& cached = cache_[HashBytes(word) % kCacheEntries];
  if (text_.substr(cached.text_begin, cached.text_length) == word) {
    for (size_t i = 0; i < cached.output_length; ++i) {
      output_.push_back(output_[cached.output_begin + i]);
    }
    return true;
  }
  const size_t output_begin = output_.size();
  if (!MergeWord(word)) return false;
  cached = {static_cast<uint32_t>(begin), static_cast<uint32_t>(output_begin),
            static_cast<uint16_t>(word.size()),
            static_cast<uint16_t>(output_.size() - output_begin)};
  return true;
}

// One symbol per character, or per byte for characters that are not tokens; then the merges.
bool EncodeRun::MergeWord(std::string_view word) {
  symbols_.clear();
  for (size_t at = 0; at < word.size();) {
    const auto byte = static_cast<uint8_t>(word[at]);
    // A special token of a damaged vocabulary may have cut a character: its parts go byte by byte.
    const size_t length =
        byte < 0x80 ? 1 : std::max<size_t>(1, Utf8SequenceLength(word.substr(at)));
    const TokenId id =
        byte < 0x80 ? tokenizer_.ascii_ids_[byte] : tokenizer_.table_.Find(word.substr(at, length));
    if (id != kNoToken) {
      symbols_.push_back(id);
    } else {
      for (size_t i = 0; i < length; ++i) {
        symbols_.push_back(tokenizer_.byte_ids_[static_cast<uint8_t>(word[at + i])]);
      }
    }
    at += length;
  }
  if (!tokenizer_internal::MergeSymbols(tokenizer_.merges_, options_.stop, symbols_)) return false;
  output_.insert(output_.end(), symbols_.begin(), symbols_.end());
  return true;
}

// The text may have spelt out the BOS that was put before it.
void EncodeRun::KeepOneBos() {
  size_t end = 1;
  while (end < output_.size() && output_[end] == output_[0]) ++end;
  output_.erase(output_.begin() + 1, output_.begin() + static_cast<ptrdiff_t>(end));
}

Result<std::vector<TokenId>> Tokenizer::EncodeSegments(std::span<const TextSegment> segments,
                                                       const EncodeOptions& options) const {
  try {
    return EncodeRun(*this, options).Run(segments);
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorKind::kOutOfMemory, "tokenizer.memory",
                     "not enough memory to encode the text; split it into parts");
  }
}

Result<std::vector<TokenId>> Tokenizer::Encode(std::string_view text,
                                               const EncodeOptions& options) const {
  const TextSegment segment{text, options.parse_special};
  return EncodeSegments({&segment, 1}, options);
}

}  // namespace rullama
