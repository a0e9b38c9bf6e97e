// Encodes arbitrary bytes with small vocabularies, one with listed and one with scored merges; the
// ids must decode to the same text.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>

#include "core/base/utf8.h"
#include "core/tokenizer/tokenizer.h"

namespace {

using rullama::TokenType;

// All bytes, markers, runs of newlines and spaces, and merges over a few letters.
std::shared_ptr<const rullama::Tokenizer> MakeTokenizer(bool scored) {
  static std::deque<std::string> strings;
  rullama::VocabularyData data;
  data.model = "gemma4";
  const auto add = [&](std::string text, TokenType type) {
    data.tokens.push_back(strings.emplace_back(std::move(text)));
    data.types.push_back(static_cast<int32_t>(type));
  };
  for (const char* text : {"<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"}) {
    add(text, TokenType::kControl);
  }
  for (const char* text : {"\n\n", "\n", "\t", "<b>", "</b>", "<|\"|>", "<|image>", "<|image|>"}) {
    add(text, TokenType::kUserDefined);
  }
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
  for (const char* text : {"▁", "▁▁", "a", "b", "c", "é", "你", "aa", "ab", "▁a", "aab", "▁aab",
                           "c▁", "c▁a", "你你"}) {
    add(text, TokenType::kNormal);
  }
  if (scored) {
    data.model = "llama";
    // Later tokens merge first, but for one of equal score.
    std::vector<float>& scores = data.scores.emplace(data.tokens.size());
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(i / 2);
  } else {
    data.merges = {"aa b", "▁ ▁", "c ▁", "a a", "a b", "▁ a", "c▁ a", "▁ aab", "你 你"};
  }
  data.bos_id = 2;
  auto tokenizer = rullama::Tokenizer::Build(std::move(data));
  if (!tokenizer) std::abort();
  return *tokenizer;
}

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

std::string WithPlainSpaces(std::string text) {
  for (size_t at = 0; (at = text.find("▁", at)) != std::string::npos;) text.replace(at, 3, " ");
  return text;
}

void CheckText(const rullama::Tokenizer& tokenizer, std::string_view text, uint8_t seed) {
  const bool parse_special = (seed & 1) != 0;
  const auto ids = tokenizer.Encode(text, {.parse_special = parse_special});
  const bool valid = !rullama::FindInvalidUtf8(text);
  Require(ids.has_value() == valid, "exactly valid UTF-8 encodes");
  if (!valid) return;
  Require(ids->size() <= text.size(), "a token covers at least one byte");
  if (!parse_special) {
    for (const auto id : *ids) {
      Require(tokenizer.kind(id) != rullama::TokenKind::kControl, "user text holds no markers");
    }
  }
  const auto decoded = tokenizer.Decode(*ids, /*show_control=*/true);
  Require(decoded && *decoded == WithPlainSpaces(std::string(text)), "decoding gives the text");
  // Cutting user text in two anywhere must not matter.
  const size_t cut = seed % (text.size() + 1);
  const rullama::TextSegment halves[] = {{text.substr(0, cut), false}, {text.substr(cut), false}};
  const auto again = tokenizer.EncodeSegments(halves);
  Require(again && (parse_special || *again == *ids), "segments are one text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto listed = MakeTokenizer(/*scored=*/false);
  static const auto scored = MakeTokenizer(/*scored=*/true);
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  CheckText(*listed, text, data[0]);
  CheckText(*scored, text, data[0]);
  return 0;
}
