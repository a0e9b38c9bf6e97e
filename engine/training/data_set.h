// Examples to learn from, read from files of one JSON object a line:
//
//   {"messages": [...], "tools": [...]}      a conversation, as the OpenAI chat API has it
//   {"prompt": "...", "completion": "..."}   a user's turn and the answer, or plain text with `raw`
//   {"text": "..."}                          plain text
//   {"ids": [...], "targets": [...]}         tokens and what each row learns; -1 does not count
//
// All lines of a file are of one kind. What a model learns of each is in DataOptions.
//
// Thread safety: pure functions. Errors (kUsage): data.line (file, line, what was found and what is
// expected), data.long (on_long = error), data.untrained (strict), data.empty; io.* of reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/tokenizer/tokenizer.h"
#include "engine/training/example.h"
#include "models/common/model.h"

namespace rullama {

// The names of the members of a line. "tools" stands beside the messages under this name.
struct DataKeys {
  std::string messages = "messages";
  std::string prompt = "prompt";
  std::string completion = "completion";
  std::string text = "text";
};

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
};

// Examples of the text of a file. `name` is the file's, for messages.
Result<DataSet> ParseDataSet(std::string_view text, const std::string& name, const Model& model,
                             const Tokenizer& tokenizer, const DataOptions& options);

// Those of a file.
Result<DataSet> ReadDataSet(const std::string& path, const Model& model, const Tokenizer& tokenizer,
                            const DataOptions& options);

}  // namespace rullama
