// Members that the endpoints of the OpenAI API have in common.
#pragma once

#include <optional>
#include <string>

#include "server/answer_request.h"
#include "server/field_reader.h"
#include "server/tool_fields.h"

namespace rullama::server {

// The facts that a reader of bodies needs beside the body as JSON.
struct BodyContext {
  std::string_view text;  // the body as it came: nlohmann::json does not keep the order of members
  int64_t slots = 1;
  int64_t capacity = 0;   // tokens of a slot
  bool denoises = false;  // the model writes canvases
};

// model, stop, logit_bias, cache_prompt, ignore_eos, sampling; what is accepted without effect and
// what is refused.
void ReadCommon(FieldReader& fields, const BodyContext& context, Request& request);
// n: 1 to the number of slots, at most 8.
void ReadCount(FieldReader& fields, const BodyContext& context, AnswerRequest& out);
// stream and stream_options.
void ReadStreaming(FieldReader& fields, const BodyContext& context, AnswerRequest& out);

// A format of the answer's text. Errors for types that do not exist.
struct TextFormat {
  enum class Kind { kText, kJsonObject, kJsonSchema };
  Kind kind = Kind::kText;
  std::string schema;  // JSON with its members in the order of the body
};

// `format`: {"type": "text" | "json_object" | "json_schema"}, the schema beside it in a member
// "json_schema" or, with `flat`, as members "name", "schema" and "strict". `path`: the names of the
// members that lead to it from the body.
TextFormat ReadTextFormat(FieldReader& fields, const nlohmann::json& format,
                          const std::vector<std::string>& path, bool flat,
                          const BodyContext& context);

// Makes tools and format part of a request, which has its logprobs by then. Refuses what a model
// that denoises cannot be held to. `format_name`: the member that `format` was read from.
void ApplyOutput(FieldReader& fields, const BodyContext& context, const ToolFields& tools,
                 const TextFormat& format, std::string_view format_name, Request& request);

// The value of "reasoning_effort" or "effort": whether to think.
std::optional<bool> ReadEffort(FieldReader& fields, std::string_view name);

// The members that nobody asked for become ignored ones.
void NameIgnored(const FieldReader& fields, AnswerRequest& out);

}  // namespace rullama::server
