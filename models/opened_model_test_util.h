// For tests: a model file of any family with its model and its tokenizer.
#pragma once

#include <filesystem>
#include <memory>

#include "core/base/must_test_util.h"
#include "core/tokenizer/vocabulary_from_gguf.h"
#include "models/registry.h"

namespace rullama {

struct OpenedModel {
  explicit OpenedModel(const std::filesystem::path& path) : file(Must(GgufFile::Open(path))) {}

  GgufFile file;
  std::unique_ptr<Model> model = Must(OpenModel(file));
  std::shared_ptr<const Tokenizer> tokenizer =
      Must(Tokenizer::Build(Must(VocabularyFromGguf(file))));
};

}  // namespace rullama
