// The base of models that make one vector of a whole text. They write no text, so functions about
// answers are the error model.encoder (kUsage).
//
// Thread safety: as Model.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/common/model.h"

namespace rullama {

// The names of prompts by task as sentence-transformers has them, for EmbeddingGemma 1 and 2. Of
// some tasks there are several names. They are in no file.
[[nodiscard]] std::span<const EmbeddingPrompt> EmbeddingGemmaPrompts(int generation);

// The token after each text, for both generations.
inline constexpr std::string_view kEmbeddingGemmaEnd = "<eos>";

// Error model.encoder.
[[nodiscard]] tl::unexpected<Error> WritesNoText();

class EncoderModel : public Model {
 public:
  [[nodiscard]] Result<Graph> BuildConditioning() const override { return WritesNoText(); }
  [[nodiscard]] uint64_t CacheBytes(const BuildOptions& /*options*/) const override { return 0; }
  [[nodiscard]] Result<Adapter> ReadAdapter(const std::string& path) const override;
  [[nodiscard]] Result<EncodedChat> EncodeChat(
      const Tokenizer& /*tokenizer*/, const nlohmann::json& /*messages*/,
      const nlohmann::json& /*tools*/, const EncodeChatOptions& /*options*/) const override {
    return WritesNoText();
  }
  [[nodiscard]] PromptBorders BordersOf(const Tokenizer& /*tokenizer*/,
                                        std::span<const TokenId> /*ids*/) const override {
    return {};
  }
  [[nodiscard]] std::unique_ptr<OutputParser> MakeOutputParser(
      const OutputParserOptions& options) const override;
  [[nodiscard]] std::span<const std::string_view> AnswerMarkers() const override { return {}; }
  [[nodiscard]] Result<AnswerGrammar> MakeAnswerGrammar(const AnswerForm& /*form*/) const override {
    return WritesNoText();
  }

 protected:
  using Model::Model;
};

}  // namespace rullama
