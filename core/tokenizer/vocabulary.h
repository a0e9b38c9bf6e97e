// The data a tokenizer is built from: views of the arrays in a model file, and the checks that make
// them safe to use.
//
// Ownership: the string views borrow; the bytes of `tokens` must outlive every Tokenizer built from
// them (they normally lie in the memory-mapped model file). `merges` is read while building only.
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace rullama {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;
// U+2581, which stands for a space in tokens.
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

// Numbers as written in `tokenizer.ggml.token_type`.
enum class TokenType : int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct VocabularyData {
  std::vector<std::string_view> tokens;
  std::vector<int32_t> types;            // empty (all normal) or one TokenType per token
  std::vector<std::string_view> merges;  // "left right", the index is the rank; not if scored

  std::string model;  // "gemma4" or "llama"
  std::string pre;

  // SentencePiece's scores, one per token: of a scored vocabulary the higher merges first.
  std::optional<std::vector<float>> scores;
  std::optional<bool> add_space_prefix;    // put a space before every text
  std::optional<uint64_t> embedding_rows;  // rows of the embedding matrix, if known

  std::optional<uint64_t> bos_id;
  std::optional<uint64_t> eos_id;
  std::optional<uint64_t> eot_id;
  std::optional<uint64_t> unknown_id;
  std::optional<uint64_t> padding_id;
  std::vector<int64_t> extra_eos_ids;
  std::vector<int64_t> suppress_ids;

  // Whether merges follow from the scores of the tokens (SentencePiece), not from a list. Ollama
  // calls a listed vocabulary "llama" as well, and says "gemma4" in `pre`.
  [[nodiscard]] bool is_scored() const { return model == "llama" && pre != "gemma4"; }
};

// Checks everything that needs no look-up of tokens. Errors (kModelFile): tokenizer.model (of
// another kind), tokenizer.size (array lengths that do not agree), tokenizer.type (a token type
// outside 0..6), tokenizer.vocabulary_id (an id outside the vocabulary), tokenizer.merge (no
// merges), tokenizer.score (scored, but a score is missing or not finite), tokenizer.space_prefix
// (texts would begin with a space that nobody wrote).
Status CheckVocabulary(const VocabularyData& data);

// Whether `text` is one of the turn, channel, tool and media markers of Gemma 3 and 4. Files
// disagree about their token type (control, user-defined or even normal), so they are recognised by
// name.
bool IsMarkerName(std::string_view text);

// The byte a byte token stands for ("<0x0A>" is 10), or nothing if `text` is not of that form.
std::optional<uint8_t> ParseByteToken(std::string_view text);

}  // namespace rullama
