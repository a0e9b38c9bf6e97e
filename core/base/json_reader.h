// The reader of JSON that comes from outside: files, lines of standard input, bodies of requests,
// texts of callers. A text is checked as it is read, once, and nothing is built beyond the first
// fault: UTF-8, one value and nothing after it (a NUL ends no text), levels, because values that
// are copied or compared recurse, the count of values, and no key twice in an object, of which
// readers would take one or the other. core/config/yaml_tree.h is the same for YAML.
//
// Thread safety: pure functions. Time and memory are linear in the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace rullama {

struct JsonLimits {
  size_t depth = 64;  // lists and objects inside one another
  size_t values = SIZE_MAX;
  bool keys_may_repeat = false;  // the last one counts
};

struct JsonFault {
  enum class Kind : uint8_t {
    kUtf8,  // also half of a surrogate pair
    kSyntax,
    kNumber,  // too large for a double
    kDepth,
    kValues,
    kDuplicateKey,
  };
  Kind kind = Kind::kSyntax;
  size_t byte = 0;       // bytes that were read when it was found
  size_t limit = 0;      // of kDepth and kValues
  std::string key = {};  // of kDuplicateKey, fit to be shown

  // What follows the name of the text in a message: "is not valid JSON (byte 7)".
  [[nodiscard]] std::string ToString() const;
};

template <typename T>
using JsonResult = tl::expected<T, JsonFault>;

JsonResult<nlohmann::json> ReadJson(std::string_view text, const JsonLimits& limits = {});
// The same with the members of objects in the order of the text.
JsonResult<nlohmann::ordered_json> ReadOrderedJson(std::string_view text,
                                                   const JsonLimits& limits = {});

}  // namespace rullama
