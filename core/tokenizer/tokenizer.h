// Text -> token ids: special tokens by exact match, then byte-pair encoding with ranked merges,
// spaces as U+2581, byte tokens for what the vocabulary lacks. The merges are listed in the file
// (Gemma 4) or follow from the scores of the tokens (SentencePiece, Gemma 3).
//
// Ownership: borrows the bytes of the vocabulary's tokens (see vocabulary.h).
// Thread safety: immutable after Build; any number of threads may encode and decode at once.
//
// The folder: vocabulary_from_gguf.h reads the tables of a model file, detokenizer.h turns ids back
// into text. Markers in text that users supply stay text (TextSegment::parse_special).
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/tokenizer/merge_table.h"
#include "core/tokenizer/special_matcher.h"
#include "core/tokenizer/token_table.h"
#include "core/tokenizer/vocabulary.h"

namespace rullama {

// The kind of a token as the program uses it, which may differ from the type in the file.
enum class TokenKind : uint8_t {
  kText,
  kControl,      // control tokens and markers: hidden from the reader
  kUserDefined,  // matched as a whole string, shown
  kByte,
};

inline constexpr size_t kAnyTokens = std::numeric_limits<size_t>::max();

struct EncodeOptions {
  // Recognise control tokens and markers in the text. Off for text that users supply: there a
  // marker's characters are plain text and cannot end a turn.
  bool parse_special = true;
  // Make the result begin with exactly one BOS, whether or not the text spelt it out. The file's
  // add_bos flag is not consulted: files of different origin disagree, the model always wants one.
  bool add_bos = false;
  // A text of more tokens is an error, which is found without encoding all of it.
  size_t max_tokens = kAnyTokens;
  std::stop_token stop = {};  // checked every few thousand merges
};

// A stretch of text and whether control tokens and markers in it are recognised. Stretches are
// encoded as one text: merges and user-defined tokens cross their borders, markers do not.
struct TextSegment {
  std::string_view text;
  bool parse_special = false;
};

class Tokenizer {
 public:
  // Errors (kModelFile): those of CheckVocabulary; tokenizer.merge (a merge whose parts or result
  // are not tokens); tokenizer.bytes (neither all 256 byte tokens nor an unknown token);
  // (kOutOfMemory) tokenizer.memory.
  static Result<std::shared_ptr<const Tokenizer>> Build(VocabularyData data);

  // Errors: text.utf8 (kUsage; the message has the byte offset), text.size (4 GiB or more, or more
  // than max_tokens), tokenizer.cancelled, tokenizer.memory. NUL characters are allowed.
  [[nodiscard]] Result<std::vector<TokenId>> Encode(std::string_view text,
                                                    const EncodeOptions& options = {}) const;
  // The same for segments; options.parse_special is ignored in favour of each segment's own.
  [[nodiscard]] Result<std::vector<TokenId>> EncodeSegments(
      std::span<const TextSegment> segments, const EncodeOptions& options = {}) const;

  // The text of `ids` (see detokenizer.h for streaming). Error tokenizer.id (kUsage).
  [[nodiscard]] Result<std::string> Decode(std::span<const TokenId> ids,
                                           bool show_control = false) const;

  [[nodiscard]] size_t size() const { return tokens_.size(); }
  [[nodiscard]] bool Contains(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < tokens_.size();
  }
  // The token as the file spells it ("▁the", "<0x0A>"). `id` must be contained.
  [[nodiscard]] std::string_view TokenText(TokenId id) const {
    return tokens_[static_cast<size_t>(id)];
  }
  // Appends the bytes that the token stands for: U+2581 is a space, a byte token its byte, a marker
  // its spelling. `id` must be contained.
  void AppendBytes(TokenId id, std::string& bytes) const;
  [[nodiscard]] TokenKind kind(TokenId id) const { return kinds_[static_cast<size_t>(id)]; }
  // The token with exactly this spelling.
  [[nodiscard]] std::optional<TokenId> FindToken(std::string_view text) const;

  [[nodiscard]] std::optional<TokenId> bos_id() const { return bos_id_; }
  [[nodiscard]] std::optional<TokenId> padding_id() const { return padding_id_; }
  // Tokens that end generation, ascending: <eos>, <turn|>, <|tool_response>, <end_of_turn>,
  // <start_function_response> and the ids the file names, but never </s>, which is an HTML tag in
  // these vocabularies.
  [[nodiscard]] std::span<const TokenId> end_of_generation_ids() const { return eog_ids_; }
  [[nodiscard]] bool IsEndOfGeneration(TokenId id) const;
  // Tokens the file asks never to sample.
  [[nodiscard]] std::span<const TokenId> suppressed_ids() const { return suppressed_ids_; }

 private:
  friend class EncodeRun;
  Tokenizer() = default;

  Status BuildTables(const VocabularyData& data);
  void BuildScoredMerges(std::span<const float> scores);
  void ClassifyTokens(const VocabularyData& data);
  Status ResolveBytes(const VocabularyData& data);
  void ResolveCharacters();
  void ResolveEndOfGeneration(const VocabularyData& data);

  std::vector<std::string_view> tokens_;
  std::vector<TokenKind> kinds_;
  size_t longest_token_ = 1;  // bytes
  tokenizer_internal::TokenTable table_;
  tokenizer_internal::MergeTable merges_;
  tokenizer_internal::SpecialMatcher special_;

  std::array<TokenId, 256> byte_ids_{};       // the byte token, or the unknown token
  std::array<TokenId, 128> ascii_ids_{};      // the token of each ASCII character, or kNoToken
  std::vector<TokenId> newline_run_ids_;      // [n] = token of n newlines, or kNoToken
  std::bitset<256> joins_following_space_{};  // see ResolveCharacters
  std::optional<TokenId> bos_id_;
  std::optional<TokenId> padding_id_;
  std::vector<TokenId> eog_ids_;
  std::vector<TokenId> suppressed_ids_;
};

}  // namespace rullama
