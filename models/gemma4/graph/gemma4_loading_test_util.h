// For tests: what the file of a Gemma 4 model says.
#pragma once

#include <filesystem>
#include <utility>

#include "core/base/must_test_util.h"
#include "models/gemma4/graph/gemma4_test_file.h"
#include "models/gemma4/graph/weights.h"

namespace rullama {

struct LoadedGemma4 {
  Gemma4Config config;
  Gemma4Weights weights;
};

// `strict`: a tensor that the model does not use is an error.
inline Result<LoadedGemma4> LoadGemma4(const GgufFile& file, bool strict = false) {
  RL_ASSIGN_OR_RETURN(auto config, Gemma4Config::FromFile(file));
  RL_ASSIGN_OR_RETURN(auto weights, Gemma4Weights::FromFile(config, file, {.strict = strict}));
  return LoadedGemma4{std::move(config), std::move(weights)};
}

inline Result<LoadedGemma4> LoadGemma4(Gemma4TestFile source, bool strict = false) {
  const auto bytes = source.Bytes();
  RL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(bytes));
  return LoadGemma4(file, strict);
}

// A whole file, all of whose tensors are used without a warning.
inline LoadedGemma4 LoadWholeGemma4(const std::filesystem::path& path) {
  LoadedGemma4 loaded = Must(LoadGemma4(Must(GgufFile::Open(path)), /*strict=*/true));
  EXPECT_TRUE(loaded.weights.warnings().empty());
  return loaded;
}

}  // namespace rullama
