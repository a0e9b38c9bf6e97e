#include "core/tokenizer/vocabulary_from_gguf.h"

#include <algorithm>
#include <new>
#include <span>

namespace rullama {
namespace {

constexpr std::string_view kEmbeddingTensor = "token_embd.weight";

// Ids are u32 in files, but a converter that wrote -1 for "none" should get the vocabulary's error,
// not a type error, so any integer is taken.
Result<std::optional<uint64_t>> FindId(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.Find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto id = IntegerAt<int64_t>(*value, 0); id && value->type != GgufType::kArray) {
    return static_cast<uint64_t>(*id);
  }
  return MakeError(ErrorKind::kModelFile, "gguf.key_type", "{} is {}, expected an integer", key,
                   Describe(*value));
}

// Ollama writes one id or a list of them.
Result<std::vector<int64_t>> FindIds(const GgufFile& file, std::string_view key) {
  std::vector<int64_t> ids;
  const GgufValue* value = file.Find(key);
  if (value == nullptr) return ids;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto id = IntegerAt<int64_t>(*value, static_cast<size_t>(i));
    if (!id) {
      return MakeError(ErrorKind::kModelFile, "gguf.key_type", "{} is {}, expected integers", key,
                       Describe(*value));
    }
    ids.push_back(*id);
  }
  return ids;
}

Status ReadArrays(const GgufFile& file, VocabularyData& data) {
  RL_ASSIGN_OR_RETURN(const GgufStrings tokens, file.GetStrings("tokenizer.ggml.tokens"));
  RL_ASSIGN_OR_RETURN(const size_t count, CountTokens(file));
  data.tokens.reserve(count);
  for (const std::string_view token : tokens) {
    if (data.tokens.size() < count) data.tokens.push_back(token);
  }
  if (!data.is_scored()) {
    RL_ASSIGN_OR_RETURN(const GgufStrings merges, file.GetStrings("tokenizer.ggml.merges"));
    data.merges.reserve(merges.size());
    for (const std::string_view merge : merges) data.merges.push_back(merge);
  }
  RL_ASSIGN_OR_RETURN(auto types, file.FindI32Array("tokenizer.ggml.token_type"));
  if (types) data.types = *std::move(types);
  if (data.types.size() == tokens.size()) data.types.resize(count);
  RL_ASSIGN_OR_RETURN(const auto scores, file.FindF32Array("tokenizer.ggml.scores"));
  if (scores) {
    std::vector<float>& copy = data.scores.emplace();
    copy.reserve(scores->size());
    for (size_t i = 0; i < scores->size(); ++i) copy.push_back((*scores)[i]);
    if (copy.size() == tokens.size()) copy.resize(count);
  }
  if (const TensorInfo* embedding = file.FindTensor(kEmbeddingTensor)) {
    data.embedding_rows = embedding->dims[1];
  }
  return OkStatus();
}

Status ReadIds(const GgufFile& file, VocabularyData& data) {
  RL_ASSIGN_OR_RETURN(data.bos_id, FindId(file, "tokenizer.ggml.bos_token_id"));
  RL_ASSIGN_OR_RETURN(data.eos_id, FindId(file, "tokenizer.ggml.eos_token_id"));
  RL_ASSIGN_OR_RETURN(data.eot_id, FindId(file, "tokenizer.ggml.eot_token_id"));
  RL_ASSIGN_OR_RETURN(data.unknown_id, FindId(file, "tokenizer.ggml.unknown_token_id"));
  RL_ASSIGN_OR_RETURN(data.padding_id, FindId(file, "tokenizer.ggml.padding_token_id"));
  RL_ASSIGN_OR_RETURN(data.extra_eos_ids, FindIds(file, "tokenizer.ggml.eos_token_ids"));
  RL_ASSIGN_OR_RETURN(data.suppress_ids, FindIds(file, "tokenizer.ggml.suppress_tokens"));
  return OkStatus();
}

}  // namespace

Result<size_t> CountTokens(const GgufFile& file) {
  constexpr auto kText = static_cast<int32_t>(TokenType::kNormal);
  RL_ASSIGN_OR_RETURN(const GgufStrings tokens, file.GetStrings("tokenizer.ggml.tokens"));
  const size_t count = tokens.size();
  const TensorInfo* embedding = file.FindTensor(kEmbeddingTensor);
  if (embedding == nullptr || embedding->dims[1] >= count) return count;
  RL_ASSIGN_OR_RETURN(const auto types, file.FindI32Array("tokenizer.ggml.token_type"));
  if (!types || types->size() != count) return count;
  const auto rows = static_cast<size_t>(embedding->dims[1]);
  const std::span<const int32_t> beyond = std::span(*types).subspan(rows);
  return std::ranges::find(beyond, kText) == beyond.end() ? rows : count;
}

Result<VocabularyData> VocabularyFromGguf(const GgufFile& file) {
  try {
    VocabularyData data;
    RL_ASSIGN_OR_RETURN(data.model, file.GetString("tokenizer.ggml.model"));
    RL_ASSIGN_OR_RETURN(const auto pre, file.FindString("tokenizer.ggml.pre"));
    data.pre = pre.value_or("");
    RL_ASSIGN_OR_RETURN(data.add_space_prefix, file.FindBool("tokenizer.ggml.add_space_prefix"));
    RL_RETURN_IF_ERROR(ReadArrays(file, data));
    RL_RETURN_IF_ERROR(ReadIds(file, data));
    return data;
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorKind::kOutOfMemory, "tokenizer.memory",
                     "not enough memory for the vocabulary of the model file");
  }
}

}  // namespace rullama
