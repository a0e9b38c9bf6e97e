// The subject of a comparison by `rullama diff`: a graph with its weights and the tokens of one
// step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/chat/prompt.h"
#include "cli/commands/loading.h"

namespace rullama::cli {

struct DiffModel {
  Graph graph;                      // its output "logits" is that of every row
  std::vector<std::string> layers;  // values that end a layer, in order; logits last
  std::unique_ptr<WeightSource> weights;
  std::vector<int32_t> tokens;
  // Of the tokens, after which the predictions are; empty for a canvas, and for a random model,
  // which has no words.
  std::vector<std::string> texts;
  int64_t vocabulary = 0;
  int64_t sliding_window = 0;  // 0: no layer has one
  int64_t heads = 0;
  std::string name;
  std::optional<LoadedModel> file;  // what the weights point into
};

// Among the backends to compare, the one that the others are measured against: `reference`, or the
// last.
std::string BaselineOf(const std::vector<std::string>& backends);

// The configuration for one of the backends. Options of the configuration belong to the backend
// that it names.
Config ConfigOfBackend(const Config& config, const std::string& backend);

// The model of the configuration with a prompt (PromptFlags); without a prompt, its first tokens
// are some of the vocabulary. Errors: of LoadModel and ReadPrompt; context.overflow.
Result<std::unique_ptr<DiffModel>> OpenDiffModel(const ConfigFlags& flags,
                                                 const PromptFlags& prompt, Console& console);
// A random model (ModelFamily::draw) and random tokens.
Result<std::unique_ptr<DiffModel>> OpenRandomDiffModel(uint64_t seed);

// Values of one run, by name, as f32; integers below 2^24 are exact.
using DiffValues = std::map<std::string, std::vector<float>>;

// One step from an empty cache over all tokens. `watched` are read in addition to the logits;
// `given` are integers that take the place of what the graph computes (router_selections.h).
// `observer` may be null. Errors of plugins, placement and devices.
Result<DiffValues> RunDiffModel(const DiffModel& model, const Graph& graph,
                                const std::vector<std::string>& watched, const DiffValues& given,
                                const BackendDevices& devices, StepObserver* observer);

}  // namespace rullama::cli
