// Members that the endpoints of the OpenAI API have in common.
#pragma once

#include <optional>
#include <string>

#include "server/answer_request.h"
#include "server/body_context.h"
#include "server/field_reader.h"
#include "server/form_fields.h"
#include "server/tool_fields.h"

namespace rullama::server {

// model, stop, logit_bias, cache_prompt, id_slot, ignore_eos, speculative, sampling; members that
// are accepted without effect, and refused ones.
void ReadCommon(FieldReader& fields, const BodyContext& context, Request& request);
// Of these: sampling, cache_prompt, id_slot, ignore_eos and speculative.
void ReadSettings(FieldReader& fields, const BodyContext& context, Request& request);
// n: 1 to the number of slots, at most 8.
void ReadCount(FieldReader& fields, const BodyContext& context, AnswerRequest& out);
// stream and stream_options.
void ReadStreaming(FieldReader& fields, const BodyContext& context, AnswerRequest& out);

// A format of the answer's text. Errors for types that do not exist.
// Makes tools and form part of a request, which has its logprobs by then. Refuses what a model that
// denoises cannot be held to.
void ApplyOutput(FieldReader& fields, const BodyContext& context, const ToolFields& tools,
                 const TextForm& form, Request& request, AnswerRequest& out);

// The value of "reasoning_effort" or "effort": whether to think.
std::optional<bool> ReadEffort(FieldReader& fields, std::string_view name);

// The members that nobody asked for become ignored ones.
void NameIgnored(const FieldReader& fields, AnswerRequest& out);

}  // namespace rullama::server
