// Vocabularies for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace rullama::tokenizer_test {

// Owns the strings that a VocabularyData borrows.
class OwnedVocabulary {
 public:
  OwnedVocabulary() {
    data_.model = "gemma4";
    data_.bos_id = 2;
    data_.eos_id = 1;
    data_.unknown_id = 3;
    data_.padding_id = 0;
  }
  OwnedVocabulary(const OwnedVocabulary&) = delete;
  OwnedVocabulary& operator=(const OwnedVocabulary&) = delete;

  void AddToken(std::string text, TokenType type) {
    data_.tokens.push_back(strings_.emplace_back(std::move(text)));
    data_.types.push_back(static_cast<int32_t>(type));
  }
  void AddMerge(std::string line) {
    data_.merges.push_back(strings_.emplace_back(std::move(line)));
  }
  VocabularyData& data() { return data_; }
  [[nodiscard]] std::shared_ptr<const Tokenizer> Build() const {
    auto tokenizer = Tokenizer::Build(data_);
    EXPECT_TRUE(tokenizer) << tokenizer.error().ToString();
    return tokenizer ? *tokenizer : nullptr;
  }

 private:
  std::deque<std::string> strings_;
  VocabularyData data_;
};

// The 2,048-token vocabulary of the tiny models, from its Hugging Face form. Markers are typed as
// normal tokens, which is how the converter leaves most of them.
inline std::unique_ptr<OwnedVocabulary> LoadTinyVocabulary() {
  auto vocabulary = std::make_unique<OwnedVocabulary>();
  std::ifstream file(RULLAMA_SOURCE_DIR "/tests/data/tokenizer_tiny_vocabulary.json");
  const auto json = nlohmann::json::parse(file);
  const auto& model = json.at("model");
  std::vector<std::string> tokens(model.at("vocab").size());
  for (const auto& [text, id] : model.at("vocab").items()) tokens.at(id.get<size_t>()) = text;
  constexpr size_t kControlTokens = 5;  // <pad> <eos> <bos> <unk> <mask>
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_byte = ParseByteToken(tokens[i]).has_value();
    vocabulary->AddToken(tokens[i], i < kControlTokens ? TokenType::kControl
                                    : is_byte          ? TokenType::kByte
                                                       : TokenType::kNormal);
  }
  for (const auto& merge : model.at("merges")) {
    vocabulary->AddMerge(merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }
  return vocabulary;
}

// Ids, or a failure that shows the error.
inline std::vector<TokenId> Encode(const Tokenizer& tokenizer, std::string_view text,
                                   const EncodeOptions& options = {}) {
  auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids) << ids.error().ToString();
  return ids ? *std::move(ids) : std::vector<TokenId>{};
}

// Checks every line {"text": ..., "ids": [...]} of a file; returns how many there were.
inline size_t CheckVectors(const Tokenizer& tokenizer, const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  size_t count = 0;
  for (std::string line; std::getline(file, line); ++count) {
    const auto vector = nlohmann::json::parse(line);
    const auto text = vector.at("text").get<std::string>();
    EXPECT_EQ(Encode(tokenizer, text), vector.at("ids").get<std::vector<TokenId>>()) << text;
  }
  return count;
}

}  // namespace rullama::tokenizer_test
