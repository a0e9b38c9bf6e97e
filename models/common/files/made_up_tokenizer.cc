#include "models/common/files/made_up_tokenizer.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace rullama {
namespace {

constexpr size_t kFirstByteToken = 238;
constexpr size_t kSmallestVocabulary = 1024;

// Markers, newlines, byte tokens, printable characters, one word, then fillers.
struct MadeUpVocabulary {
  MadeUpVocabulary(size_t size, std::span<const MadeUpTokenizer::Special> specials)
      : types(size, static_cast<int32_t>(TokenType::kNormal)), scores(size, -1000.0f) {
    tokens.reserve(size);
    for (size_t id = 0; id < size; ++id) tokens.push_back(fmt::format("\xE2\x96\x81w{}", id));
    for (const auto& special : specials) {
      if (special.id < size) Put(special.id, special.text, special.type);
    }
    Put(107, "\n", TokenType::kNormal);
    for (size_t byte = 0; byte < 256; ++byte) {
      Put(kFirstByteToken + byte, fmt::format("<0x{:02X}>", byte), TokenType::kByte);
    }
    size_t next = kFirstByteToken + 256;
    for (char c = '!'; c <= '~'; ++c) Put(next++, std::string(1, c), TokenType::kNormal);
    Put(next++, "\xE2\x96\x81", TokenType::kNormal);
    Put(next++, "th", TokenType::kNormal);
    Put(next++, "the", TokenType::kNormal);
  }
  void Put(size_t id, std::string_view text, TokenType type) {
    tokens[id] = text;
    types[id] = static_cast<int32_t>(type);
  }

  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;
  std::vector<std::string> merges = {"t h", "th e"};
};

Status WriteMadeUpTokenizer(const MadeUpTokenizer& made_up, int64_t size, GgufWriter& writer) {
  if (size < static_cast<int64_t>(kSmallestVocabulary)) {
    return MakeError(
        ErrorKind::kUsage, "synth.vocabulary",
        "architecture.vocabulary is {}, a made-up vocabulary needs {} tokens; give one "
        "with --vocab",
        size, kSmallestVocabulary);
  }
  const MadeUpVocabulary vocabulary(static_cast<size_t>(size), made_up.specials);
  RL_RETURN_IF_ERROR(writer.Set("tokenizer.ggml.model", made_up.model));
  RL_RETURN_IF_ERROR(writer.SetStrings("tokenizer.ggml.tokens", vocabulary.tokens));
  RL_RETURN_IF_ERROR(
      writer.SetArray("tokenizer.ggml.scores", std::span<const float>(vocabulary.scores)));
  RL_RETURN_IF_ERROR(
      writer.SetArray("tokenizer.ggml.token_type", std::span<const int32_t>(vocabulary.types)));
  if (made_up.lists_merges) {
    RL_RETURN_IF_ERROR(writer.SetStrings("tokenizer.ggml.merges", vocabulary.merges));
  }
  constexpr std::pair<std::string_view, uint32_t> kIds[] = {
      {"bos", 2}, {"eos", 1}, {"unknown", 3}, {"padding", 0}};
  for (const auto& [name, id] : kIds) {
    RL_RETURN_IF_ERROR(writer.Set(fmt::format("tokenizer.ggml.{}_token_id", name), id));
  }
  RL_RETURN_IF_ERROR(writer.Set("tokenizer.ggml.add_bos_token", true));
  return writer.Set("tokenizer.ggml.add_space_prefix", false);
}

Status CopyTokenizer(const GgufFile& vocabulary, int64_t size, GgufWriter& writer) {
  const GgufValue* tokens = vocabulary.Find("tokenizer.ggml.tokens");
  const uint64_t found = tokens == nullptr ? 0 : tokens->count;
  if (found != static_cast<uint64_t>(size)) {
    return MakeError(ErrorKind::kUsage, "synth.vocabulary",
                     "'{}' has {} tokens, the architecture {}", vocabulary.path(), found, size);
  }
  for (const GgufEntry& entry : vocabulary.metadata()) {
    if (entry.key.starts_with("tokenizer.")) {
      RL_RETURN_IF_ERROR(writer.SetRaw(entry.key, entry.value));
    }
  }
  return OkStatus();
}

}  // namespace

Status WriteTokenizer(const MadeUpTokenizer& made_up, int64_t size, const SyntheticOptions& options,
                      GgufWriter& writer) {
  if (options.vocabulary != nullptr) return CopyTokenizer(*options.vocabulary, size, writer);
  return WriteMadeUpTokenizer(made_up, size, writer);
}

}  // namespace rullama
