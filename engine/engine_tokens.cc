// Texts as tokens, and back.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/embeddings.h"
#include "engine/engine_impl.h"
#include "engine/request_job.h"

namespace rullama {
namespace {

size_t MaxTokens(int64_t most) { return most < 0 ? kAnyTokens : static_cast<size_t>(most); }

}  // namespace

Result<int64_t> Engine::CountPrompt(const Request& request, int64_t most) const {
  RL_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, PromptTokens(request, most));
  return std::ssize(prompt);
}

Result<std::vector<int32_t>> Engine::PromptTokens(const Request& request, int64_t most) const {
  return PromptIds(impl_->session->model(), request, most, *impl_->media_budget);
}

TokenizerFacts Engine::tokenizer_facts() const {
  const LoadedModel& model = impl_->session->model();
  const Tokenizer& tokenizer = impl_->session->tokenizer();
  const auto text_of = [&](const char* key) {
    const auto id = model.file.file->FindU32(key);
    if (!id || !*id || !tokenizer.Contains(static_cast<int32_t>(**id))) return std::string();
    return std::string(tokenizer.TokenText(static_cast<int32_t>(**id)));
  };
  return {.bos = text_of("tokenizer.ggml.bos_token_id"),
          .eos = text_of("tokenizer.ggml.eos_token_id"),
          .padding = text_of("tokenizer.ggml.padding_token_id"),
          .unknown = text_of("tokenizer.ggml.unknown_token_id"),
          .chat_template = model.model->JinjaTemplate()};
}

Result<std::vector<int32_t>> Engine::Tokenize(std::string_view text, bool parse_special,
                                              bool add_bos, int64_t most) const {
  return impl_->session->tokenizer().Encode(
      text, {.parse_special = parse_special, .add_bos = add_bos, .max_tokens = MaxTokens(most)});
}

Result<std::string> Engine::Detokenize(std::span<const int32_t> ids, bool show_control) const {
  return impl_->session->tokenizer().Decode(ids, show_control);
}

Result<std::string> Engine::TokenBytes(int32_t id) const {
  const Tokenizer& tokenizer = impl_->session->tokenizer();
  if (!tokenizer.Contains(id)) {
    return MakeError(ErrorKind::kUsage, "tokenizer.id",
                     "token id {} is outside the vocabulary of {} tokens", id, tokenizer.size());
  }
  std::string bytes;
  tokenizer.AppendBytes(id, bytes);
  return bytes;
}

Result<std::vector<int32_t>> Engine::ChatTokens(std::string_view messages, std::string_view tools,
                                                bool thinking, int64_t most) const {
  RL_ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJson(messages, "messages"));
  nlohmann::json functions;
  if (!tools.empty()) {
    RL_ASSIGN_OR_RETURN(functions, ParseJson(tools, "tools"));
  }
  RL_ASSIGN_OR_RETURN(EncodedChat chat, impl_->session->model().model->EncodeChat(
                                            impl_->session->tokenizer(), parsed, functions,
                                            {.thinking = thinking, .max_tokens = MaxTokens(most)}));
  return std::move(chat.ids);
}

Result<std::vector<int32_t>> Engine::EmbeddingTokens(std::string_view text, std::string_view task,
                                                     int64_t most) const {
  const LoadedModel& model = impl_->session->model();
  RL_ASSIGN_OR_RETURN(const std::string_view prompt, PromptFor(*model.model, task));
  const std::string whole = prompt.empty() ? std::string() : fmt::format("{}{}", prompt, text);
  RL_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                      Tokenize(prompt.empty() ? text : std::string_view(whole),
                               /*parse_special=*/false, /*add_bos=*/true, most));
  if (!impl_->info.encodes) return ids;
  RL_ASSIGN_OR_RETURN(const TokenId end, EndOfText(model));
  ids.push_back(end);
  return ids;
}

}  // namespace rullama
