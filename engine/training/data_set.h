// Examples to learn from, read from a file of one JSON object a line, or of one JSON list of such
// objects. data_form.h has the forms of an object; all of a file are of one kind. What a model
// learns of each is in DataOptions.
//
// Every learnt answer ends: with the marker of the chat template, with <eos> for plain text and for
// models without a template. Markers in plain text are tokens, as `tokenize` reads them.
//
// Thread safety: pure functions. Errors (kUsage): data.line (file, line, what was found and what
// was expected), data.long (on_long = error), data.untrained (strict), data.empty; io.* of reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/tokenizer/tokenizer.h"
#include "engine/training/data_form.h"
#include "engine/training/example.h"
#include "models/common/model.h"

namespace rullama {

struct DataOptions {
  TrainOn train_on = TrainOn::kAssistant;
  bool raw = false;
  bool thinking = false;  // reasoning of the last turn is learnt
  OnLongLine on_long = OnLongLine::kCut;
  int64_t max_tokens = 2048;  // of an example
  bool strict = false;
  DataKeys keys = {};
};

struct DataSet {
  std::vector<Example> examples;
  int64_t lines = 0;
  int64_t cut = 0;              // examples that were too long and lost their end
  int64_t split = 0;            // texts that became several examples
  int64_t dropped = 0;          // examples that were too long
  int64_t untrained = 0;        // lines without a token to learn
  int64_t first_untrained = 0;  // line

  // "20 lines, 18 examples, 1 cut, 2 without a token to learn (the first is line 7)"
  [[nodiscard]] std::string Describe() const;
  // The first answer that is learnt and what stands before it, shortened: "after "Who? " the model
  // learns "A count.<eos>"".
  [[nodiscard]] std::string DescribeFirst(const Tokenizer& tokenizer) const;
};

// Examples of the text of a file. `name` is the file's, for messages.
Result<DataSet> ParseDataSet(std::string_view text, const std::string& name, const Model& model,
                             const Tokenizer& tokenizer, const DataOptions& options);

// Those of a file.
Result<DataSet> ReadDataSet(const std::string& path, const Model& model, const Tokenizer& tokenizer,
                            const DataOptions& options);

}  // namespace rullama
