// The cost of answers under a schema: compiling the schemas of a folder, and the masks of the texts
// that come with them, token by token.
//   constraint_bench VOCABULARY.gguf FOLDER
//
// Each file of the folder is an object in the format of MaskBench
// (github.com/guidance-ai/jsonschemabench): {"schema": ..., "tests": [{"valid": true, "data":
// ...}]}. Texts that are not valid are left out, and so are the tokens of a text from the one on
// that its schema does not allow in this place: the benchmark writes the members of objects in the
// order of `data`, which may not be that of `properties`. The time of a mask is that of
// Matcher::Mask and Matcher::Accept together. All texts of a schema share its masks, as the answers
// of a server do. Times are processor time of the thread: the largest of a million others would be
// those of the system's interruptions.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <ratio>
#include <string>
#include <vector>

#include "bench/must.h"
#include "core/base/clock.h"
#include "core/constraint/matcher.h"
#include "core/constraint/schema_compiler.h"
#include "core/gguf/gguf.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/vocabulary_from_gguf.h"

namespace {

using rullama::TokenId;
using rullama::Tokenizer;
using rullama::bench::Must;
using rullama::constraint::Json;
using rullama::constraint::MaskTable;
using rullama::constraint::Matcher;
using rullama::constraint::TokenTrie;

class Times {
 public:
  using Micros = std::chrono::duration<double, std::micro>;

  void AddSince(std::chrono::nanoseconds begin) {
    micros_.push_back(Micros(rullama::ThreadTime() - begin).count());
  }
  void Print(const char* name) {
    if (micros_.empty()) return;
    std::ranges::sort(micros_);
    double sum = 0;
    for (const double micros : micros_) sum += micros;
    fmt::print("{:<8} {}: mean {:.1f} us", name, micros_.size(),
               sum / static_cast<double>(micros_.size()));
    for (const double part : {0.5, 0.75, 0.9, 0.95, 0.99, 0.999}) {
      const auto at = static_cast<size_t>(part * static_cast<double>(micros_.size() - 1));
      fmt::print(", p{:g} {:.1f}", part * 100, micros_[at]);
    }
    fmt::print(", worst {:.1f}\n", micros_.back());
  }

 private:
  std::vector<double> micros_;
};

struct Totals {
  Times compile;
  Times masks;
  size_t refused_schemas = 0;
  size_t texts = 0;
  size_t left_texts = 0;  // not followed to their end
};

// A value with one space after each separator, as models write it.
void Write(const Json& value, std::string& text) {
  if (!value.is_structured() || value.empty()) {
    text += value.dump();
    return;
  }
  text += value.is_object() ? '{' : '[';
  const char* separator = "";
  for (const auto& [key, member] : value.items()) {
    text += separator;
    separator = ", ";
    if (value.is_object()) text += Json(key).dump() + ": ";
    Write(member, text);
  }
  text += value.is_object() ? '}' : ']';
}

// Whether the text was followed to its end.
bool FollowText(const std::vector<TokenId>& tokens, Matcher matcher, Times& times) {
  constexpr int64_t kTokensLeft = 100'000;
  for (const TokenId token : tokens) {
    const auto begin = rullama::ThreadTime();
    const auto mask = matcher.Mask(kTokensLeft);
    if (!mask || (!mask->empty() && !rullama::constraint::IsTokenAllowed(*mask, token))) {
      return false;
    }
    if (!matcher.Accept(token)) return false;
    times.AddSince(begin);
  }
  return matcher.may_end();
}

void RunFile(const Json& file, const Tokenizer& tokenizer,
             const std::shared_ptr<const TokenTrie>& trie, Totals& totals) {
  const auto begin = rullama::ThreadTime();
  const auto grammar = rullama::constraint::GrammarOf(file.at("schema"));
  if (!grammar) {
    ++totals.refused_schemas;
    return;
  }
  const auto table = std::make_shared<MaskTable>(*grammar, trie);
  totals.compile.AddSince(begin);
  for (const Json& test : file.value("tests", Json::array())) {
    if (!test.at("valid").get<bool>()) continue;
    std::string text;
    Write(test.at("data"), text);
    const auto tokens = tokenizer.Encode(text);
    if (!tokens) continue;
    ++totals.texts;
    if (!FollowText(*tokens, Matcher(table), totals.masks)) ++totals.left_texts;
  }
}

std::vector<std::filesystem::path> FilesOf(const char* folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

void Run(const char* vocabulary, const char* folder) {
  const auto gguf = Must(rullama::GgufFile::Open(vocabulary));
  const auto tokenizer = Must(Tokenizer::Build(Must(rullama::VocabularyFromGguf(gguf))));
  const auto trie = TokenTrie::Build(*tokenizer, {}, static_cast<int64_t>(tokenizer->size()));
  Totals totals;
  for (const std::filesystem::path& path : FilesOf(folder)) {
    std::ifstream stream(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    RunFile(Json::parse(text), *tokenizer, trie, totals);
  }
  totals.compile.Print("schemas");
  totals.masks.Print("masks");
  fmt::print("{} schemas refused; {} texts, {} of them not followed to their end\n",
             totals.refused_schemas, totals.texts, totals.left_texts);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: constraint_bench VOCABULARY.gguf FOLDER\n");
    return 2;
  }
  try {
    Run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "constraint_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
