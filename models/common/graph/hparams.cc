#include "models/common/graph/hparams.h"

#include <algorithm>
#include <functional>

#include "core/base/checked_math.h"
#include "core/tokenizer/vocabulary_from_gguf.h"

namespace rullama {

std::string HparamKey(const GgufFile& file, std::string_view suffix) {
  const auto name = file.GetString("general.architecture");
  return fmt::format("{}.{}", name.value_or(std::string_view()), suffix);
}

Result<int64_t> UniformU32(const GgufFile& file, std::string_view key, size_t layers) {
  RL_ASSIGN_OR_RETURN(const auto values, file.GetU32PerLayer(key, layers));
  if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end()) {
    return BadHparam("key '{}' differs between layers, expected one value", key);
  }
  return int64_t{values.front()};
}

Result<float> F32Or(const GgufFile& file, std::string_view key, float otherwise) {
  RL_ASSIGN_OR_RETURN(const auto value, file.FindF32(key));
  return value.value_or(otherwise);
}

Result<int64_t> U32Or(const GgufFile& file, std::string_view key, int64_t otherwise) {
  RL_ASSIGN_OR_RETURN(const auto value, file.FindU32(key));
  return value ? int64_t{*value} : otherwise;
}

Status CheckPooling(const GgufFile& file) {
  const std::string causal_key = HparamKey(file, "attention.causal");
  RL_ASSIGN_OR_RETURN(const auto causal, file.FindBool(causal_key));
  if (causal.value_or(false)) {
    return BadHparam("key '{}' is true, expected false: the rows of a text see each other",
                     causal_key);
  }
  const std::string pooling_key = HparamKey(file, "pooling_type");
  RL_ASSIGN_OR_RETURN(const int64_t pooling, U32Or(file, pooling_key, kPoolingMean));
  if (pooling == kPoolingMean) return OkStatus();
  return BadHparam("key '{}' is {}, expected {} (the mean)", pooling_key, pooling, kPoolingMean);
}

Result<FileVocabulary> ReadFileVocabulary(const GgufFile& file) {
  RL_ASSIGN_OR_RETURN(const auto tokens, file.FindStrings("tokenizer.ggml.tokens"));
  const TensorInfo* table = file.FindTensor("token_embd.weight");
  if (table == nullptr && !tokens) {
    return MakeError(ErrorKind::kModelFile, "model.missing_tensor",
                     "tensor 'token_embd.weight' is missing, expected the token embeddings");
  }
  if (table != nullptr && tokens) {
    RL_ASSIGN_OR_RETURN(const size_t count, CountTokens(file));
    if (table->dims[1] != count) {
      return MakeError(ErrorKind::kModelFile, "model.vocabulary",
                       "tensor 'token_embd.weight' has {} rows, the tokenizer {} tokens; expected "
                       "the same",
                       table->dims[1], count);
    }
  }
  const uint64_t size = table != nullptr ? table->dims[1] : uint64_t{tokens->size()};
  const auto vocabulary = CheckedCast<int64_t>(size);
  if (!vocabulary) return BadHparam("vocabulary size is {}", size);
  FileVocabulary found{.size = *vocabulary, .suppress_tokens = {}};

  RL_ASSIGN_OR_RETURN(auto suppressed, file.FindI32Array("tokenizer.ggml.suppress_tokens"));
  if (!suppressed) return found;
  std::sort(suppressed->begin(), suppressed->end());
  suppressed->erase(std::unique(suppressed->begin(), suppressed->end()), suppressed->end());
  found.suppress_tokens = *std::move(suppressed);
  return found;
}

Status CheckSuppressed(const std::vector<int32_t>& suppress_tokens, int64_t vocabulary) {
  for (const int32_t id : suppress_tokens) {
    if (id < 0 || id >= vocabulary) {
      return MakeError(ErrorKind::kModelFile, "model.hparam",
                       "suppressed token {} is outside the vocabulary of {}", id, vocabulary);
    }
  }
  return OkStatus();
}

}  // namespace rullama
