// The endpoints of the tokenizer. They need no slot and do not wait.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/utf8.h"
#include "server/answer_parts.h"
#include "server/answer_run.h"
#include "server/endpoints.h"
#include "server/http/query.h"
#include "server/json_body.h"
#include "server/message_fields.h"
#include "server/openai/chat_request.h"
#include "server/sampling_fields.h"
#include "server/tool_fields.h"

namespace rullama::server {
namespace {

using nlohmann::json;

// {"id", "piece"}; a piece that is not UTF-8 is a list of its bytes.
json PieceOf(const Engine& engine, int32_t token) {
  const std::string bytes = engine.TokenBytes(token).value_or("");
  if (!FindInvalidUtf8(bytes)) return {{"id", token}, {"piece", bytes}};
  json list = json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return {{"id", token}, {"piece", std::move(list)}};
}

// The most tokens of a text that some request could have for its prompt.
int64_t LongestContext(const Engine& engine) {
  return std::max(engine.info().context_length, engine.info().capacity);
}

ApiError TooManyTokens(int64_t most, std::string param) {
  return MakeApiError("context_length_exceeded",
                      fmt::format("the text has more than {} tokens, the longest context of the "
                                  "model; send it in parts",
                                  most),
                      std::move(param));
}

// What /tokenize is asked for.
struct TokenizeRequest {
  std::optional<std::string> text;  // none: a conversation
  bool llama_form = false;          // llama.cpp's form of the answer, else vLLM's
  bool add_bos = false;
  bool parse_special = true;
  bool pieces = false;   // of llama.cpp's form
  bool strings = false;  // of vLLM's
  Request conversation = {};
};

void ReadTokenizedTurns(FieldReader& fields, Request& request) {
  request.messages = ReadMessages(fields, request.media).dump();
  const auto answers = fields.Boolean("add_generation_prompt");
  request.continue_last = fields.Boolean("continue_final_message").value_or(false);
  if (request.continue_last && answers == true) {
    fields.Fail("invalid_value", "continue_final_message",
                "is given together with 'add_generation_prompt'; give one");
  }
  request.add_generation_prompt = answers.value_or(true);
  const ToolFields tools = ReadTools(fields);
  if (!tools.tools.empty()) request.tools = tools.tools.dump();
  if (const json* arguments = fields.Object("chat_template_kwargs")) {
    FieldReader inner(*arguments, "chat_template_kwargs.");
    request.thinking = inner.Boolean("enable_thinking");
    fields.Fail(inner.error());
  }
}

TokenizeRequest ReadTokenize(FieldReader& fields) {
  TokenizeRequest out;
  const auto content = fields.Text("content");
  const auto prompt = fields.Text("prompt");
  const bool turns = fields.Find("messages") != nullptr;
  fields.Find("model");
  const int forms = static_cast<int>(content.has_value()) + static_cast<int>(prompt.has_value()) +
                    static_cast<int>(turns);
  if (forms > 1) {
    fields.Fail("invalid_value", content ? "content" : "prompt",
                "is given together with another of 'content', 'prompt' and 'messages'; give one");
  } else if (forms == 0) {
    fields.Fail("missing_required_parameter", "content",
                "is missing; give a text, or 'prompt' or 'messages' in its place");
  } else if (content) {
    out.llama_form = true;
    out.text = content;
    out.add_bos = fields.Boolean("add_special").value_or(false);
    out.parse_special = fields.Boolean("parse_special").value_or(true);
    out.pieces = fields.Boolean("with_pieces").value_or(false);
  } else {
    out.strings = fields.Boolean("return_token_strs").value_or(false);
    out.text = prompt;
    if (prompt) out.add_bos = fields.Boolean("add_special_tokens").value_or(true);
    if (turns) ReadTokenizedTurns(fields, out.conversation);
  }
  return out;
}

ApiResult<std::vector<int32_t>> TokensOf(const Engine& engine, const TokenizeRequest& request) {
  const int64_t most = LongestContext(engine);
  const auto ids =
      request.text ? engine.Tokenize(*request.text, request.parse_special, request.add_bos, most)
                   : engine.PromptTokens(request.conversation, most);
  if (ids) return *ids;
  if (ids.error().id == "text.size" || ids.error().id == "context.overflow") {
    return tl::unexpected(TooManyTokens(most, !request.text        ? "messages"
                                              : request.llama_form ? "content"
                                                                   : "prompt"));
  }
  return tl::unexpected(FromEngine(ids.error()));
}

// In vLLM's form.
json CountedTokens(const Engine& engine, const std::vector<int32_t>& ids, bool strings) {
  json texts = nullptr;
  if (strings) {
    texts = json::array();
    for (const int32_t id : ids) texts.push_back(ValidUtf8(engine.TokenBytes(id).value_or("")));
  }
  return {{"count", ids.size()},
          {"max_model_len", engine.info().capacity},
          {"tokens", ids},
          {"token_strs", std::move(texts)}};
}

json TextOrNull(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

}  // namespace

void Tokenize(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  FieldReader fields(*body);
  const TokenizeRequest request = ReadTokenize(fields);
  if (fields.error()) return call.Fail(*fields.error());
  const auto context = ContextOf(services, call, *body);
  if (!context) return call.Fail(context.error());
  const Engine& engine = *context->model.engine;
  const auto ids = TokensOf(engine, request);
  if (!ids) return call.Fail(ids.error());
  if (!request.llama_form) {
    call.SendJson(CountedTokens(engine, *ids, request.strings), fields.Unknown());
    return;
  }
  json tokens = json::array();
  for (const int32_t id : *ids) tokens.push_back(request.pieces ? PieceOf(engine, id) : json(id));
  call.SendJson({{"tokens", std::move(tokens)}}, fields.Unknown());
}

void Detokenize(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  FieldReader fields(*body);
  std::vector<int32_t> ids;
  const json* tokens = fields.Find("tokens");
  if (tokens == nullptr) {
    fields.Fail("missing_required_parameter", "tokens", "is missing; give a list of token ids");
  } else if (!tokens->is_array()) {
    fields.Fail("invalid_type", "tokens", "is not a list of token ids");
  } else if (!tokens->empty()) {
    ids = ReadIds(fields, "tokens", *tokens);
  }
  fields.Find("model");
  if (fields.error()) return call.Fail(*fields.error());
  const auto context = ContextOf(services, call, *body);
  if (!context) return call.Fail(context.error());
  const Engine& engine = *context->model.engine;
  const auto text = engine.Detokenize(ids, true);
  if (!text) return call.Fail(FromEngine(text.error()));
  call.SendJson({{"content", *text}, {"prompt", *text}}, fields.Unknown());
}

void TokenizerInfo(const Services& services, Call& call) {
  const auto model =
      AcquireModel(services, call, QueryValue(call.request().query, "model").value_or(""));
  if (!model) return call.Fail(model.error());
  const Engine& engine = *model->engine;
  const TokenizerFacts facts = engine.tokenizer_facts();
  call.SendJson({{"tokenizer_class", "GemmaTokenizer"},
                 {"bos_token", TextOrNull(facts.bos)},
                 {"eos_token", TextOrNull(facts.eos)},
                 {"pad_token", TextOrNull(facts.padding)},
                 {"unk_token", TextOrNull(facts.unknown)},
                 {"add_bos_token", true},
                 {"chat_template", TextOrNull(facts.chat_template)},
                 {"model_max_length", engine.info().capacity},
                 {"vocab_size", engine.info().vocabulary},
                 {"additional_special_tokens", json::array()}});
}

void ApplyTemplate(const Services& services, Call& call) {
  const auto body = ParseBody(call.request().body);
  if (!body) return call.Fail(body.error());
  const auto context = ContextOf(services, call, *body);
  if (!context) return call.Fail(context.error());
  const auto request = ReadChatRequest(*body, context->body);
  if (!request) return call.Fail(request.error());
  const Request& prompt = request->prompts.front();
  const Engine& engine = *context->model.engine;
  const int64_t most = LongestContext(engine);
  const auto ids =
      engine.ChatTokens(prompt.messages, prompt.tools, prompt.thinking.value_or(false), most);
  if (!ids && ids.error().id == "text.size") return call.Fail(TooManyTokens(most, "messages"));
  if (!ids) return call.Fail(FromEngine(ids.error()));
  const auto text = engine.Detokenize(*ids, true);
  if (!text) return call.Fail(FromEngine(text.error()));
  call.SendJson({{"prompt", *text}}, request->ignored);
}

}  // namespace rullama::server
