// Sessions for benchmarks, which end the program with a message if something fails.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/must.h"
#include "core/base/status.h"
#include "engine/loading/engine_config.h"
#include "engine/model_session.h"

namespace rullama::bench {

class StderrNotices final : public Notices {
 public:
  void Note(std::string_view /*text*/) override {}
  void Warn(std::string_view text) override { fmt::print(stderr, "warning: {}\n", text); }
};

// A session for BatchSession.
inline std::unique_ptr<ModelSession> OpenSession(const EngineOptions& options, int64_t slots) {
  StderrNotices notices;
  LoadedModel model = Must(LoadModel(Must(ConfigOf(options)), {}, notices));
  return Must(ModelSession::Open(std::move(model),
                                 {.outputs = GraphOutputs::kBatch, .slots = slots}, {}, notices));
}

// Options of a command line: MODEL BACKEND, and KEY=VALUE from the word `first` on.
inline EngineOptions OptionsOf(const std::vector<std::string>& words, size_t first) {
  EngineOptions options{.model = words[0], .backend = words[1]};
  for (size_t i = first; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    options.settings.push_back({words[i].substr(0, equals), words[i].substr(equals + 1)});
  }
  return options;
}

// The number that word `i` stands for, if there is one.
inline int64_t NumberOr(const std::vector<std::string>& words, size_t i, int64_t otherwise) {
  return words.size() > i ? std::strtoll(words[i].c_str(), nullptr, 10) : otherwise;
}

// The median of at least one number; of an even number of them the larger one in the middle.
inline double MedianOf(std::vector<double> numbers) {
  std::ranges::sort(numbers);
  return numbers[numbers.size() / 2];
}

}  // namespace rullama::bench
