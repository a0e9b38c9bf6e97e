// Compiles the templates of JSON that compiled_json/nlohmann/json.hpp declares.
#define RL_JSON_TEMPLATE template
#include <nlohmann/json.hpp>
