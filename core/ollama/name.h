// Names of models in an Ollama store: [scheme://][host/][namespace/]model[:tag].
//
// A parsed name has only characters that are safe in paths: no part is empty, begins with a dot or
// contains a separator, so joining the parts cannot leave a folder.
// Thread safety: value types and pure functions.
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"

namespace rullama {

struct OllamaName {
  std::string host;        // "registry.ollama.ai" if not given
  std::string name_space;  // "library" if not given
  std::string model;
  std::string tag;  // "latest" if not given

  // The short form: host and namespace only where they are not the defaults, the tag always.
  [[nodiscard]] std::string ToString() const;
};

// Error store.name (kind kModelFile): says which part is wrong.
Result<OllamaName> ParseOllamaName(std::string_view text);

// Whether a command-line argument that is not an existing file should be taken for a name: it
// parses and does not end in ".gguf".
[[nodiscard]] bool LooksLikeOllamaName(std::string_view text);

}  // namespace rullama
