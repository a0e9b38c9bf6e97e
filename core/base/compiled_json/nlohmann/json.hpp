// The library's header of this name, whose templates json_templates.cc compiles once for all: each source that reads or
// writes JSON would take 0.6 s more. rullama_flags puts this folder before the library's.
#pragma once
#pragma GCC system_header

#include_next <nlohmann/json.hpp>

#ifndef RL_JSON_TEMPLATE
#define RL_JSON_TEMPLATE extern template
#endif
RL_JSON_TEMPLATE class nlohmann::basic_json<>;
// Templates that other versions have in another form.
#if NLOHMANN_JSON_VERSION_MAJOR == 3 && NLOHMANN_JSON_VERSION_MINOR == 11
namespace nlohmann::detail {
using OfString = iterator_input_adapter<std::string::const_iterator>;
using OfCharacters = iterator_input_adapter<const char*>;
RL_JSON_TEMPLATE class json_sax_dom_parser<json>;
RL_JSON_TEMPLATE class json_sax_dom_callback_parser<json>;
RL_JSON_TEMPLATE class lexer<json, OfString>;
RL_JSON_TEMPLATE class parser<json, OfString>;
RL_JSON_TEMPLATE class lexer<json, OfCharacters>;
RL_JSON_TEMPLATE class parser<json, OfCharacters>;
}  // namespace nlohmann::detail
#endif
#undef RL_JSON_TEMPLATE
