// The short answer to "what is this model, and can rullama run it?".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "cli/terminal/console.h"

namespace rullama::cli {

struct ModelSummary {
  std::string name;          // as the user named it
  std::string architecture;  // "gemma4"; empty if the file does not say
  uint64_t parameters = 0;
  std::string quantization;  // "Q4_K_M"
  std::optional<int64_t> context_length;
  uint64_t bytes = 0;            // of the file
  std::optional<Error> refused;  // why rullama cannot run it
  std::string chat_warning;      // for conversations; empty: none
  // Which chat template the file has and which one rullama renders; empty for models whose
  // published template has no day.
  std::string chat_template;
  std::vector<std::string> adapters;  // files that belong to a model in Ollama's store
};

ModelSummary Summarize(const ModelFile& model);

// The same, and whether the configured backend runs the model. Errors: config.* (kUsage).
Result<ModelSummary> SummarizeOnBackend(const ModelFile& model, const ConfigFlags& flags,
                                        Console& console);

// A line for each fact; control characters of the file are masked.
std::string SummaryText(const ModelSummary& summary);

}  // namespace rullama::cli
