// Time to build the tokenizer of the full Gemma 4 vocabulary, and encoding throughput.
//   tokenizer_bench VOCABULARY.gguf
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>

#include "bench/must.h"
#include "core/gguf/gguf.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/vocabulary_from_gguf.h"

namespace {

using rullama::GgufFile;
using rullama::Tokenizer;

constexpr size_t kTextBytes = 1 << 20;

// Zipf-like English: function words often, longer words now and then, punctuation, paragraphs.
std::string EnglishText() {
  const char* const words[] = {
      "the",          "of",         "and",          "to",         "a",           "in",
      "he",           "his",        "was",          "that",       "with",        "had",
      "not",          "at",         "Prince",       "Andrew",     "said",        "army",
      "commander",    "Petersburg", "countess",     "horses",     "evening",     "expression",
      "nevertheless", "understand", "regiment",     "smiling",    "Pierre",      "looked",
      "suddenly",     "Napoleon",   "conversation", "unfamiliar", "thoughtfully"};
  constexpr size_t kWords = sizeof(words) / sizeof(words[0]);
  std::string text;
  for (uint32_t state = 1, count = 1; text.size() < kTextBytes; ++count) {
    state = state * 1664525 + 1013904223;
    // The product of two uniform numbers favours the front of the list.
    const size_t index = ((state >> 8 & 255) * (state >> 16 & 255) * kWords) >> 16;
    text += words[index];
    // A suffix now and then gives words that have not been seen.
    if (count % 7 == 0) text += std::to_string(state >> 24) + "th";
    text += count % 97 == 0 ? ".\n\n" : count % 13 == 0 ? ", " : " ";
  }
  return text;
}

GgufFile& File(const char* path = nullptr) {
  static GgufFile file = rullama::bench::Must(GgufFile::Open(path));
  return file;
}

void BM_Load(benchmark::State& state) {
  for (auto _ : state) {
    auto tokenizer = Tokenizer::Build(*rullama::VocabularyFromGguf(File()));
    benchmark::DoNotOptimize(tokenizer);
    if (!tokenizer) state.SkipWithError(tokenizer.error().ToString().c_str());
  }
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond)->UseRealTime();

void Encode(benchmark::State& state, const std::string& text) {
  const auto tokenizer = *Tokenizer::Build(*rullama::VocabularyFromGguf(File()));
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->Encode(text));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}
void BM_EncodeEnglish(benchmark::State& state) { Encode(state, EnglishText()); }
BENCHMARK(BM_EncodeEnglish)->Unit(benchmark::kMillisecond);

// A megabyte without a space, which no cut can split.
void BM_EncodeOneWord(benchmark::State& state) {
  std::string text;
  for (uint32_t random = 1; text.size() < kTextBytes;) {
    random = random * 1664525 + 1013904223;
    text += static_cast<char>('a' + (random >> 24) % 26);
  }
  Encode(state, text);
}
BENCHMARK(BM_EncodeOneWord)->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: tokenizer_bench [--benchmark_...] VOCABULARY.gguf\n");
    return 2;
  }
  File(argv[1]);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
