// Assistants: small networks that guess the next tokens of the model that they were trained for
// (multi-token prediction). An assistant has no keys and values of its own. Its attention reads the
// caches of its model, and it starts from what the model computed last.
//
// Thread safety: immutable; const member functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "models/common/model_graph.h"

namespace rullama {

struct AssistantFacts {
  int64_t layers = 0;
  int64_t width = 0;         // of its own residual stream
  int64_t target_width = 0;  // of the model that it was made for
  int64_t vocabulary = 0;    // tokens
  // A head with ordered embeddings computes the tokens of `chosen_clusters` of the `clusters` into
  // which the vocabulary is divided. 0: the head computes all tokens.
  int64_t clusters = 0;
  int64_t chosen_clusters = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;       // of the tensors in the file
  uint64_t step_bytes = 0;  // of the weights that guessing one token reads

  [[nodiscard]] bool has_ordered_head() const { return clusters > 0; }
};

// A file that somebody named has to be right. In one that was found next to a model, a damaged head
// with ordered embeddings is a warning, and the assistant then computes all tokens.
enum class AssistantOrigin : uint8_t { kNamed, kFound };

// What a graph of an assistant gives.
struct DraftShape {
  int64_t tokens = 0;          // that it guesses for each row
  int64_t places = 0;          // of draft_names::kHidden
  bool probabilities = false;  // also draft_names::kProbabilities
};

class Assistant {
 public:
  Assistant(const Assistant&) = delete;
  Assistant& operator=(const Assistant&) = delete;
  virtual ~Assistant() = default;

  [[nodiscard]] const AssistantFacts& facts() const { return facts_; }
  // Warnings for the user about the file, one sentence each.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  // A graph that guesses the next tokens of each row (draft_names). `options`: those of the model's
  // graphs, whose caches it reads. Errors: those of Model::BuildGraph.
  [[nodiscard]] virtual Result<ModelGraph> BuildGraph(const BuildOptions& options,
                                                      const DraftShape& draft) const = 0;
  // Begins the names of the graph's constants that are tensors of the assistant's file.
  [[nodiscard]] virtual std::string_view tensor_prefix() const = 0;
  // The constants of the graph that are made of tensors of `file`, from which this was read.
  // Errors: those of GgufFile::Load.
  [[nodiscard]] virtual Result<std::vector<SyntheticConstant>> MakeConstants(
      const GgufFile& file) const = 0;

 protected:
  Assistant(AssistantFacts facts, std::vector<std::string> warnings)
      : facts_(facts), warnings_(std::move(warnings)) {}

 private:
  AssistantFacts facts_;
  std::vector<std::string> warnings_;
};

}  // namespace rullama
