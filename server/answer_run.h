// Runs the answers to a request and writes them in the form of its endpoint.
#pragma once

#include <functional>
#include <memory>

#include "server/answer_format.h"
#include "server/answer_request.h"
#include "server/call.h"
#include "server/openai_fields.h"
#include "server/services.h"

namespace rullama::server {

// Answers the call, also with errors. Blocks until the answer is over. The status of a stream goes
// out when the first answer has a slot, so that what is refused before has a status of its own.
void RunAnswer(const Services& services, Call& call, Engine& engine, const AnswerRequest& request,
               AnswerFormat& format);

// The model, and what readers of bodies have to know of it.
struct LoadedContext {
  std::shared_ptr<Engine> engine;
  BodyContext body;  // borrows the text of the body
};
ApiResult<LoadedContext> ContextOf(const Services& services, std::string_view body);

// Prompts without text or ids become BOS alone.
void ContinueEmptyPrompts(const Engine& engine, AnswerRequest& request);

// The error for a client that a request could not be submitted with.
ApiError SubmitError(const Engine& engine, const Request& request, const Error& error);

// Facts of the model that the formats need.
AnswerIdentity IdentityOf(const Services& services, std::shared_ptr<Engine> engine);

}  // namespace rullama::server
