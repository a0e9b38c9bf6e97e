// The tokenizer of a model file of random weights. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/status.h"
#include "core/gguf/gguf_writer.h"
#include "core/tokenizer/vocabulary.h"
#include "models/common/family.h"

namespace rullama {

// Tokens of a family's made-up vocabularies in addition to bytes, printable characters and fillers.
struct MadeUpTokenizer {
  struct Special {
    size_t id;  // below 238, where the bytes begin, or in no small vocabulary
    std::string_view text;
    TokenType type;
  };
  std::string_view model;  // tokenizer.ggml.model
  bool lists_merges = false;
  // <pad>, <eos>, <bos> and <unk> are 0 to 3. A vocabulary lacks those beyond its size.
  std::span<const Special> specials;
};

// Copies the tokenizer of options.vocabulary, or makes one up. Error synth.vocabulary (kUsage): of
// another size than `size`, or too small to be made up.
Status WriteTokenizer(const MadeUpTokenizer& made_up, int64_t size, const SyntheticOptions& options,
                      GgufWriter& writer);

}  // namespace rullama
