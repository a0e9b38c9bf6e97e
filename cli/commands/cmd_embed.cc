// rullama embed: texts as vectors, as JSON lines or as a NumPy file.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "core/base/json_reader.h"
#include "core/gguf/atomic_file.h"

namespace rullama::cli {
namespace {

constexpr size_t kMaxTextsBytes = size_t{1} << 30;
constexpr size_t kMaxTextDepth = 8;
// Texts that are handed to the engine together: enough for several steps of short ones.
constexpr size_t kTextsTogether = 64;

struct EmbedFlags {
  ConfigFlags config;
  std::vector<std::string> texts;  // without an option
  std::vector<std::string> files;
  std::string task;
  std::string out;
  int64_t dimensions = 0;
  bool json_lines = false;
};

// The text of a line of --jsonl: a string, or the member "text" of an object.
Result<std::string> TextOfLine(std::string_view line, size_t number) {
  const auto value = ReadJson(line, {.depth = kMaxTextDepth});
  if (!value) {
    return MakeError(ErrorKind::kUsage, "input.json", "line {}: {}", number,
                     value.error().ToString());
  }
  if (value->is_string()) return value->get<std::string>();
  if (value->is_object() && value->contains("text") && (*value)["text"].is_string()) {
    return (*value)["text"].get<std::string>();
  }
  return MakeError(ErrorKind::kUsage, "input.json",
                   "line {} is neither a string nor an object with a string \"text\"", number);
}

// Appends the texts of `content`: one for each line that is not blank.
Status AddLines(std::string_view content, bool json_lines, std::vector<std::string>& texts) {
  for (size_t number = 1; !content.empty(); ++number) {
    std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(line.size() + 1, content.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (!json_lines) {
      texts.emplace_back(line);
      continue;
    }
    RL_ASSIGN_OR_RETURN(std::string text, TextOfLine(line, number));
    texts.push_back(std::move(text));
  }
  return OkStatus();
}

// The texts of the command line, of files and of stdin, in this order.
Result<std::vector<std::string>> TextsOf(const EmbedFlags& flags) {
  std::vector<std::string> texts = flags.texts;
  for (const std::string& path : flags.files) {
    RL_ASSIGN_OR_RETURN(std::string content, ReadTextFile(path, kMaxTextsBytes));
    if (flags.json_lines) {
      RL_RETURN_IF_ERROR(AddLines(content, /*json_lines=*/true, texts));
    } else {
      texts.push_back(std::move(content));
    }
  }
  if (flags.texts.empty() && flags.files.empty()) {
    RL_ASSIGN_OR_RETURN(const std::string content, ReadStdin(kMaxTextsBytes));
    RL_RETURN_IF_ERROR(AddLines(content, flags.json_lines, texts));
  }
  if (!texts.empty()) return texts;
  return MakeError(ErrorKind::kUsage, "usage.prompt",
                   "there is no text, expected one on the command line, in --file or on stdin");
}

// The header of a NumPy file, version 1.0, of float32 [rows, columns].
std::string NumpyHeader(size_t rows, int64_t columns) {
  constexpr size_t kPrefix = 10;     // magic, version, length
  constexpr size_t kAlignment = 64;  // of the data
  std::string text =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  const size_t whole = (kPrefix + text.size() + kAlignment) / kAlignment * kAlignment;
  text.resize(whole - kPrefix - 1, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

// Takes the vectors in order, and writes them where the user wants them.
class VectorWriter {
 public:
  VectorWriter(Console& console, const EmbedFlags& flags) : console_(console), flags_(flags) {}

  Status Begin(size_t rows, int64_t columns) {
    if (flags_.out.empty()) return OkStatus();
    RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(flags_.out));
    file_ = std::make_unique<AtomicFile>(std::move(file));
    const std::string header = NumpyHeader(rows, columns);
    return file_->Append(std::as_bytes(std::span(header)));
  }
  Status Add(size_t index, size_t tokens, const std::vector<float>& values) {
    if (file_) return file_->Append(std::as_bytes(std::span(values)));
    return console_.Write(fmt::format("{{\"index\":{},\"tokens\":{},\"embedding\":[{}]}}\n", index,
                                      tokens, fmt::join(values, ",")));
  }
  Status Finish() { return file_ ? file_->Commit() : OkStatus(); }

 private:
  Console& console_;
  const EmbedFlags& flags_;
  std::unique_ptr<AtomicFile> file_;  // null: lines on stdout
};

// Embeds texts [first, end) together and hands them to the writer.
Status EmbedGroup(Engine& engine, const EmbedFlags& flags, const std::vector<std::string>& texts,
                  size_t first, size_t end, VectorWriter& writer) {
  std::vector<std::vector<int32_t>> ids;
  for (size_t i = first; i < end; ++i) {
    RL_ASSIGN_OR_RETURN(ids.emplace_back(), engine.EmbeddingTokens(texts[i], flags.task));
  }
  const auto vectors = engine.EmbedEach(ids, {.dimensions = flags.dimensions});
  for (size_t k = 0; k < vectors.size(); ++k) {
    if (!vectors[k]) {
      Error error = vectors[k].error();
      return tl::unexpected(std::move(error).WithContext(fmt::format("text {}", first + k)));
    }
    RL_RETURN_IF_ERROR(writer.Add(first + k, ids[k].size(), *vectors[k]));
  }
  return OkStatus();
}

Result<int> EmbedTexts(const EmbedFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const std::vector<std::string> texts, TextsOf(flags));
  RL_ASSIGN_OR_RETURN(const auto engine, OpenEngine(flags.config, console));
  const int64_t width = engine->info().embedding_width;
  VectorWriter writer(console, flags);
  RL_RETURN_IF_ERROR(writer.Begin(texts.size(), flags.dimensions > 0 ? flags.dimensions : width));
  Progress progress(console, "embed");
  for (size_t first = 0; first < texts.size(); first += kTextsTogether) {
    const size_t end = std::min(first + kTextsTogether, texts.size());
    RL_RETURN_IF_ERROR(EmbedGroup(*engine, flags, texts, first, end, writer));
    if (!flags.out.empty()) progress.Update(static_cast<int64_t>(end), std::ssize(texts));
  }
  progress.Clear();
  RL_RETURN_IF_ERROR(writer.Finish());
  if (!flags.out.empty()) {
    console.Note(fmt::format("wrote {} embeddings to '{}'", texts.size(), flags.out));
  }
  return 0;
}

}  // namespace

void AddEmbedCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<EmbedFlags>();
  CLI::App* command = app.add_subcommand("embed", "Texts as vectors");
  command
      ->add_option("TEXT", flags->texts,
                   "Texts; without them and --file, each line of stdin is one")
      ->option_text(" ");
  command->add_option("-f,--file", flags->files, "A text; may be repeated")->option_text("FILE");
  command->add_flag(
      "--jsonl", flags->json_lines,
      "Files and stdin have lines of strings or of {\"text\": ...}, one for each text");
  command
      ->add_option("--task", flags->task,
                   "The task whose prompt comes before each text: query, document, STS, "
                   "Clustering, Classification, ... [default none]")
      ->option_text("NAME");
  command
      ->add_option("--dimensions", flags->dimensions,
                   "The first N numbers of each vector, scaled to length 1 again [default all]")
      ->check(CLI::PositiveNumber)
      ->option_text("N");
  command
      ->add_option("--out", flags->out,
                   "A NumPy file, float32 [texts, numbers]; else stdout gets a JSON object for "
                   "each text")
      ->option_text("FILE");
  AddModelOptions(*command, flags->config);
  command->footer(R"(Examples:
  rullama embed -m embeddinggemma.gguf --task query "What is war?"
  rullama embed -m embeddinggemma.gguf --task document -f a.txt -f b.txt --dimensions 256
  rullama embed -m embeddinggemma.gguf --task document --jsonl --out docs.npy < docs.jsonl)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return EmbedTexts(*flags, context.console); };
  });
}

}  // namespace rullama::cli
