// The tokenizer's part of a GGUF file's metadata, in both spellings that exist: llama.cpp's
// converter (model "gemma4") and Ollama's (model "llama", pre "gemma4", a list of end ids).
#pragma once

#include <cstddef>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "core/tokenizer/vocabulary.h"

namespace rullama {

// The views in the result borrow the file's bytes. Errors: gguf.key_missing and gguf.key_type;
// tokenizer.memory. The content is checked by Tokenizer::Build, not here.
Result<VocabularyData> VocabularyFromGguf(const GgufFile& file);

// How many tokens the vocabulary has. Tokens at the end that are not text and have no row of the
// embeddings do not count: Ollama's converter keeps one that stands for the rows of pictures.
// Errors: gguf.key_missing and gguf.key_type.
Result<size_t> CountTokens(const GgufFile& file);

}  // namespace rullama
