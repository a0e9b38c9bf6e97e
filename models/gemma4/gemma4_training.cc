// The parts of a Gemma 4 model for training: examples, and adapters as files.
#include <string>
#include <vector>

#include "models/common/adapters/adapter_writer.h"
#include "models/gemma4/chat/encoding.h"
#include "models/gemma4/gemma4_model.h"

namespace rullama {
std::vector<AdaptableWeight> Gemma4Model::AdaptableWeights() const {
  return rullama::AdaptableWeights(ExpectedTensors(config_));
}

Status Gemma4Model::WriteAdapter(const Adapter& adapter, const AdapterFileOptions& options,
                                 const std::string& folder) const {
  const std::string architecture(config_.denoises() ? kDiffusionGemmaArchitecture
                                                    : kGemma4Architecture);
  RL_RETURN_IF_ERROR(WritePeftAdapter(adapter, options, folder));
  return WriteGgufAdapter(adapter, architecture, folder + "/adapter.gguf");
}

Result<EncodedExample> Gemma4Model::EncodeExample(const Tokenizer& tokenizer,
                                                  const nlohmann::json& messages,
                                                  const nlohmann::json& tools, TrainedTurns turns,
                                                  bool thinking) const {
  RL_ASSIGN_OR_RETURN(const chat::ChatPrompt prompt,
                      gemma4::RenderChat(messages, tools,
                                         {.variant = variant_,
                                          .enable_thinking = thinking,
                                          .add_generation_prompt = false,
                                          .trained = turns}));
  return chat::EncodeExample(tokenizer, gemma4::kTurnMarkers, prompt);
}

}  // namespace rullama
