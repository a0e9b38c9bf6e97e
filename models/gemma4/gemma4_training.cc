// The parts of a Gemma 4 model for training: examples, and adapters as files.
#include <string>
#include <vector>

#include "models/gemma4/adapters/adapter_writer.h"
#include "models/gemma4/chat/encoding.h"
#include "models/gemma4/gemma4_model.h"

namespace rullama {
namespace {

// Text that is learnt and text that is not are encoded apart, as they are when a model goes on
// behind a prompt. Exactly one BOS.
Result<EncodedExample> EncodeStretches(const Tokenizer& tokenizer,
                                       const gemma4::ChatPrompt& prompt) {
  RL_RETURN_IF_ERROR(gemma4::CheckChatMarkers(tokenizer));
  EncodedExample example;
  const std::vector<gemma4::PromptSegment>& all = prompt.segments;
  for (size_t begin = 0; begin < all.size();) {
    std::vector<TextSegment> stretch;
    size_t end = begin;
    for (; end < all.size() && all[end].is_trained == all[begin].is_trained; ++end) {
      stretch.push_back({all[end].text, all[end].is_template});
    }
    RL_ASSIGN_OR_RETURN(const auto ids, tokenizer.EncodeSegments(stretch, {.add_bos = begin == 0}));
    example.ids.insert(example.ids.end(), ids.begin(), ids.end());
    example.trained.resize(example.ids.size(), all[begin].is_trained ? 1 : 0);
    begin = end;
  }
  return example;
}

}  // namespace

std::vector<AdaptableWeight> Gemma4Model::AdaptableWeights() const {
  return rullama::AdaptableWeights(config_);
}

Status Gemma4Model::WriteAdapter(const Adapter& adapter, const std::string& base,
                                 const std::string& folder) const {
  const std::string architecture(config_.denoises() ? kDiffusionGemmaArchitecture
                                                    : kGemma4Architecture);
  RL_RETURN_IF_ERROR(WritePeftAdapter(adapter, base, folder));
  return WriteGgufAdapter(adapter, architecture, folder + "/adapter.gguf");
}

Result<EncodedExample> Gemma4Model::EncodeExample(const Tokenizer& tokenizer,
                                                  const nlohmann::json& messages,
                                                  const nlohmann::json& tools, TrainedTurns turns,
                                                  bool thinking) const {
  RL_ASSIGN_OR_RETURN(const gemma4::ChatPrompt prompt,
                      gemma4::RenderChat(messages, tools,
                                         {.variant = variant_,
                                          .enable_thinking = thinking,
                                          .add_generation_prompt = false,
                                          .trained = turns}));
  return EncodeStretches(tokenizer, prompt);
}

}  // namespace rullama
