#include "core/tokenizer/vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace rullama {
namespace {

// Ids travel as int32 through graphs and kernels.
constexpr uint64_t kMaxTokens = std::numeric_limits<TokenId>::max();

constexpr auto kMarkerNames = std::to_array<std::string_view>({
    "<|tool>",
    "<tool|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    "<|\"|>",
    "<|think|>",
    "<|channel>",
    "<channel|>",
    "<|turn>",
    "<turn|>",
    "<|image>",
    "<image|>",
    "<|image|>",
    "<|audio>",
    "<audio|>",
    "<|audio|>",
    "<|video|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_of_image>",
    "<end_of_image>",
    "<image_soft_token>",
    "<start_function_declaration>",
    "<end_function_declaration>",
    "<start_function_call>",
    "<end_function_call>",
    "<start_function_response>",
    "<end_function_response>",
    "<escape>",
});

Status CheckLength(std::string_view what, uint64_t found, uint64_t expected) {
  if (found == expected) return OkStatus();
  return MakeError(
      ErrorKind::kModelFile, "tokenizer.size",
      "{} has {} entries, but the vocabulary has {} tokens; the file is damaged or was "
      "converted wrongly, convert or download it again",
      what, found, expected);
}

template <typename Int>
Status CheckId(std::string_view key, Int id, size_t token_count) {
  if (std::cmp_greater_equal(id, 0) && std::cmp_less(id, token_count)) return OkStatus();
  return MakeError(
      ErrorKind::kModelFile, "tokenizer.vocabulary_id",
      "{} is {}, but the vocabulary has tokens 0 to {}; convert or download the file again", key,
      id, token_count - 1);
}

Status CheckSizes(const VocabularyData& data) {
  const uint64_t count = data.tokens.size();
  if (count == 0 || count > kMaxTokens) {
    return MakeError(ErrorKind::kModelFile, "tokenizer.size",
                     "the vocabulary has {} tokens, expected 1 to {}", count, kMaxTokens);
  }
  if (!data.types.empty()) {
    RL_RETURN_IF_ERROR(CheckLength("tokenizer.ggml.token_type", data.types.size(), count));
  }
  if (data.scores) {
    RL_RETURN_IF_ERROR(CheckLength("tokenizer.ggml.scores", data.scores->size(), count));
  }
  if (data.embedding_rows) {
    RL_RETURN_IF_ERROR(CheckLength("the embedding matrix", *data.embedding_rows, count));
  }
  return OkStatus();
}

Status CheckIds(const VocabularyData& data) {
  const size_t count = data.tokens.size();
  const auto single = [&](std::string_view key, const std::optional<uint64_t>& id) -> Status {
    return id ? CheckId(key, *id, count) : OkStatus();
  };
  RL_RETURN_IF_ERROR(single("tokenizer.ggml.bos_token_id", data.bos_id));
  RL_RETURN_IF_ERROR(single("tokenizer.ggml.eos_token_id", data.eos_id));
  RL_RETURN_IF_ERROR(single("tokenizer.ggml.eot_token_id", data.eot_id));
  RL_RETURN_IF_ERROR(single("tokenizer.ggml.unknown_token_id", data.unknown_id));
  RL_RETURN_IF_ERROR(single("tokenizer.ggml.padding_token_id", data.padding_id));
  for (const int64_t id : data.extra_eos_ids) {
    RL_RETURN_IF_ERROR(CheckId("an entry of tokenizer.ggml.eos_token_ids", id, count));
  }
  for (const int64_t id : data.suppress_ids) {
    RL_RETURN_IF_ERROR(CheckId("an entry of tokenizer.ggml.suppress_tokens", id, count));
  }
  return OkStatus();
}

Status CheckMerges(const VocabularyData& data) {
  if (!data.merges.empty() && data.merges.size() <= kMaxTokens) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "tokenizer.merge",
                   "the vocabulary has {} merges, expected 1 to {}; a Gemma 4 file carries its "
                   "merge list in tokenizer.ggml.merges",
                   data.merges.size(), kMaxTokens);
}

Status CheckScores(const VocabularyData& data) {
  if (data.add_space_prefix.value_or(false)) {
    return MakeError(ErrorKind::kModelFile, "tokenizer.space_prefix",
                     "tokenizer.ggml.add_space_prefix is true, expected false: the supported "
                     "models were trained without a space before texts");
  }
  if (!data.scores) {
    return MakeError(ErrorKind::kModelFile, "tokenizer.score",
                     "tokenizer.ggml.scores is missing, expected one score per token, from which "
                     "the merges of a 'llama' vocabulary follow");
  }
  const std::vector<float>& scores = *data.scores;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isfinite(scores[i])) continue;
    return MakeError(ErrorKind::kModelFile, "tokenizer.score",
                     "token {} has score {}, expected a finite number", i, scores[i]);
  }
  return OkStatus();
}

}  // namespace

Status CheckVocabulary(const VocabularyData& data) {
  if (data.model != "gemma4" && data.model != "llama") {
    return MakeError(ErrorKind::kModelFile, "tokenizer.model",
                     "tokenizer model is '{}', expected 'gemma4' or 'llama'", data.model);
  }
  RL_RETURN_IF_ERROR(CheckSizes(data));
  for (size_t i = 0; i < data.types.size(); ++i) {
    if (data.types[i] >= 0 && data.types[i] <= static_cast<int32_t>(TokenType::kByte)) continue;
    return MakeError(ErrorKind::kModelFile, "tokenizer.type",
                     "token {} has type {}, expected 0 to {}", i, data.types[i],
                     static_cast<int32_t>(TokenType::kByte));
  }
  RL_RETURN_IF_ERROR(CheckIds(data));
  return data.is_scored() ? CheckScores(data) : CheckMerges(data);
}

bool IsMarkerName(std::string_view text) {
  return std::find(kMarkerNames.begin(), kMarkerNames.end(), text) != kMarkerNames.end();
}

std::optional<uint8_t> ParseByteToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  const int high = digit(text[3]);
  const int low = digit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

}  // namespace rullama
