// The handlers of the endpoints. Each answers its call, also with errors.
#pragma once

#include <string_view>

#include "server/call.h"
#include "server/services.h"

namespace rullama::server {

// endpoints_openai.cc
void ListModels(const Services& services, Call& call);
void ShowModel(const Services& services, Call& call);
void ChatCompletions(const Services& services, Call& call);
void Completions(const Services& services, Call& call);
void Embeddings(const Services& services, Call& call);
void Responses(const Services& services, Call& call);
void ResponsesInputTokens(const Services& services, Call& call);

// endpoints_anthropic.cc
void Messages(const Services& services, Call& call);
void MessagesCountTokens(const Services& services, Call& call);
// The models in Anthropic's form, for clients that name a version of its API.
void ListAnthropicModels(const Services& services, Call& call);
void ShowAnthropicModel(const Services& services, Call& call, std::string_view id);

// endpoints_ollama.cc
void OllamaVersion(const Services& services, Call& call);
void OllamaTags(const Services& services, Call& call);
void OllamaShow(const Services& services, Call& call);
void OllamaPs(const Services& services, Call& call);
void OllamaChat(const Services& services, Call& call);
void OllamaGenerate(const Services& services, Call& call);
void OllamaEmbed(const Services& services, Call& call);
void OllamaEmbeddings(const Services& services, Call& call);

// endpoints_pull.cc
void OllamaPull(const Services& services, Call& call);

// endpoints_native.cc
void Root(const Services& services, Call& call);
void Health(const Services& services, Call& call);
void Props(const Services& services, Call& call);
void WebPage(const Services& services, Call& call);
void MetricsText(const Services& services, Call& call);

// endpoints_adapters.cc
void ListAdapters(const Services& services, Call& call);
void SetAdapters(const Services& services, Call& call);

// endpoints_slots.cc
void Slots(const Services& services, Call& call);
void ActOnSlot(const Services& services, Call& call);

// endpoints_tools.cc
void ListTools(const Services& services, Call& call);
void CallTool(const Services& services, Call& call);

// endpoints_tokenizer.cc
void TokenizerInfo(const Services& services, Call& call);
void Tokenize(const Services& services, Call& call);
void Detokenize(const Services& services, Call& call);
void ApplyTemplate(const Services& services, Call& call);

}  // namespace rullama::server
