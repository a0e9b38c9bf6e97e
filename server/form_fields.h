// The form that the text of an answer is to have, by the members that the APIs and other servers
// have for it. A form is kept to or refused, never ignored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/body_context.h"
#include "server/field_reader.h"

namespace rullama::server {

struct TextForm {
  enum class Kind { kText, kJsonObject, kJsonSchema, kPattern, kChoices };
  Kind kind = Kind::kText;
  std::string name;                  // of the member; for kText too, if there is one
  std::string schema;                // JSON with its members in the order of the body
  std::string pattern;               // matches the whole text
  std::vector<std::string> choices;  // the text is one of these
  std::vector<std::string> ignored;  // members of the form without an effect
};

// Where the schema of a format stands.
enum class SchemaPlace {
  kMember,   // in a member "json_schema", which has a name, or next to "type"
  kNamed,    // next to "type" and "name"
  kUnnamed,  // next to "type"
};

// A format of OpenAI or Anthropic: {"type": "text" | "json_object" | "json_schema"} with the
// schema. `path`: the names of the members that lead to it from the body.
TextForm ReadTextFormat(FieldReader& fields, const nlohmann::json& format,
                        const std::vector<std::string>& path, SchemaPlace schema_place,
                        const BodyContext& context);

// The form of completions and chat completions: response_format; structured_outputs, guided_json,
// guided_regex and guided_choice of vLLM, regex of SGLang, json_schema of llama.cpp. Two at once
// and forms that are not supported, such as grammars, are refused.
TextForm ReadTextForm(FieldReader& fields, const BodyContext& context);

// Refuses all members of that kind but `instead`, which is the one that the endpoint has.
void RefuseOtherForms(FieldReader& fields, std::string_view instead);

}  // namespace rullama::server
