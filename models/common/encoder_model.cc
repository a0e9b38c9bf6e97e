#include "models/common/encoder_model.h"

#include <array>

#include "models/common/plain_output_parser.h"

namespace rullama {
namespace {

constexpr std::string_view kQuery = "task: search result | query: ";
constexpr std::string_view kDocument = "title: none | text: ";
constexpr std::string_view kSimilarity = "task: sentence similarity | query: ";
constexpr std::string_view kClassification = "task: classification | query: ";
constexpr std::string_view kCode = "task: code retrieval | query: ";

constexpr size_t kPrompts = 20;

// Both generations have the same names; that of summaries alone means something else.
constexpr std::array<EmbeddingPrompt, kPrompts> Prompts(std::string_view summary) {
  return {{{"query", kQuery},
           {"document", kDocument},
           {"Retrieval-query", kQuery},
           {"Retrieval-document", kDocument},
           {"Retrieval", kQuery},
           {"BitextMining", kQuery},
           {"Reranking", kQuery},
           {"Clustering", "task: clustering | query: "},
           {"Classification", kClassification},
           {"MultilabelClassification", kClassification},
           {"STS", kSimilarity},
           {"PairClassification", kSimilarity},
           {"InstructionRetrieval", kCode},
           {"Summarization", summary},
           {"QuestionAnswering", "task: question answering | query: "},
           {"FactChecking", "task: fact checking | query: "},
           {"CodeRetrieval", kCode},
           {"SentenceSimilarity", kSimilarity},
           {"SearchQuery", kQuery},
           {"Document", kDocument}}};
}

constexpr auto kFirstPrompts = Prompts("task: summarization | query: ");
constexpr auto kSecondPrompts = Prompts(kSimilarity);

}  // namespace

std::span<const EmbeddingPrompt> EmbeddingGemmaPrompts(int generation) {
  return generation == 1 ? kFirstPrompts : kSecondPrompts;
}

tl::unexpected<Error> WritesNoText() {
  return MakeError(ErrorKind::kUsage, "model.encoder", "{}", kWritesNoText);
}

Result<Adapter> EncoderModel::ReadAdapter(const std::string& path) const {
  return MakeError(ErrorKind::kModelFile, "adapter.unsupported",
                   "adapter '{}' is given for a model that makes embeddings, expected a language "
                   "model",
                   path);
}

std::unique_ptr<OutputParser> EncoderModel::MakeOutputParser(
    const OutputParserOptions& /*options*/) const {
  return std::make_unique<chat::PlainOutputParser>();
}

}  // namespace rullama
