// Runs the answers to a request and writes them in the form of its endpoint.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/answer_format.h"
#include "server/answer_request.h"
#include "server/call.h"
#include "server/json_body.h"
#include "server/openai/openai_fields.h"
#include "server/services.h"

namespace rullama::server {

// Answers the call, also with errors. Blocks until the answer is over. The status of a stream goes
// out when the first answer has a slot, so that requests that are refused before have a status of
// their own. Makes the prompts those of the client, and gives up their pictures and sounds once
// they are decoded.
void RunAnswer(const Services& services, Call& call, Engine& engine, AnswerRequest& request,
               AnswerFormat& format);

// Tells the log and the metrics why the call was ended.
void NoteCancel(const Services& services, Call& call, CancelCause cause);

// The model of a name, for the record of the call too. Errors: those of Models::Acquire().
ApiResult<UsedModel> AcquireModel(const Services& services, Call& call, std::string_view name);

// The model of a request, and what readers of its body have to know of it.
struct LoadedContext {
  UsedModel model;
  BodyContext body;  // borrows the text of the body
};
BodyContext BodyContextOf(const UsedModel& model, std::string_view text);
// `body`: that of the call; its member `model` names the model. Errors: as AcquireModel().
ApiResult<LoadedContext> ContextOf(const Services& services, Call& call,
                                   const nlohmann::json& body);

// The request in the body of a call, and its model.
template <typename T>
struct LoadedRequest {
  UsedModel model;
  T request;
};
// Errors: those of ParseBody(), ContextOf() and `read`.
template <typename T>
ApiResult<LoadedRequest<T>> LoadRequest(const Services& services, Call& call,
                                        ApiResult<T> (*read)(const nlohmann::json& body,
                                                             const BodyContext& context)) {
  const auto body = ParseBody(call.request().body);
  if (!body) return tl::unexpected(body.error());
  auto context = ContextOf(services, call, *body);
  if (!context) return tl::unexpected(context.error());
  auto request = read(*body, context->body);
  if (!request) return tl::unexpected(request.error());
  return LoadedRequest<T>{std::move(context->model), *std::move(request)};
}

// Converts the prompts of completions for the engine: those without text or ids become BOS
// alone, and texts whose tokens are shown become ids. Fills AnswerRequest::views.
void PreparePrompts(const Engine& engine, AnswerRequest& request);
// Error (400) if the log-probabilities of all prompts together are too many to be told.
ApiResult<void> CheckPromptLogprobs(const Engine& engine, const AnswerRequest& request);

// The tokens that prompt and answer of a request may have.
int64_t ContextLimit(const Engine& engine, const Request& request);
// The tokens of ContextLimit() that the first canvas takes; 0 if the request has no canvas.
int64_t CanvasAfterPrompt(const Engine& engine, const Request& request);

// The error for a client that a request could not be submitted with.
ApiError SubmitError(const Engine& engine, const Request& request, const Error& error,
                     Dialect dialect = Dialect::kOpenAi);

// The tokens of the prompt of a request that has one. Errors: as the request would have.
ApiResult<int64_t> CountPromptTokens(const Call& call, const Engine& engine,
                                     const AnswerRequest& request);

// Facts of the model that the formats need.
AnswerIdentity IdentityOf(const Services& services, const UsedModel& model);

}  // namespace rullama::server
