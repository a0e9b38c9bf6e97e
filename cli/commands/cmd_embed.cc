// rullama embed: texts, pictures and sounds as vectors, as JSON lines or as a NumPy file.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/embed_input.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "core/gguf/atomic_file.h"

namespace rullama::cli {
namespace {

// Texts that are handed to the engine together: enough for several steps of short ones.
constexpr size_t kTextsTogether = 64;

struct EmbedFlags {
  ConfigFlags config;
  EmbedInputFlags input;
  std::string task;
  std::string out;
  int64_t dimensions = 0;
};

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

  Status Begin(std::span<const EmbedItem> items, int64_t columns) {
    if (flags_.out.empty()) return OkStatus();
    RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(flags_.out));
    for (const std::string& path : flags_.input.files) RL_RETURN_IF_ERROR(file.CheckIsNot(path));
    // Neither --image and --audio nor a line of --jsonl may name the output.
    for (const EmbedItem& item : items) {
      for (const Medium& medium : item.media) RL_RETURN_IF_ERROR(file.CheckIsNot(medium.path));
    }
    file_ = std::make_unique<AtomicFile>(std::move(file));
    const std::string header = NumpyHeader(items.size(), columns);
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

// A vector and the number of tokens that were read for it.
struct EmbeddedItem {
  std::vector<float> values;
  size_t tokens = 0;
};

// An item with pictures or sounds, after the prompt of the task.
Result<EmbeddedItem> EmbedMedia(Engine& engine, const EmbedFlags& flags, const EmbedItem& item) {
  const std::vector<TaskPrompt>& prompts = engine.info().embedding_prompts;
  const auto prompt = std::ranges::find(prompts, flags.task, &TaskPrompt::name);
  const bool known = prompt != prompts.end();
  const Request content = RequestOf(item, known ? std::string(prompt->text) : std::string());
  // The engine refuses a task that it does not know.
  const EmbeddingOptions options{.task = known ? std::string() : flags.task,
                                 .dimensions = flags.dimensions};
  EmbeddedItem embedded;
  RL_ASSIGN_OR_RETURN(embedded.values, engine.EmbedContent(content, options));
  RL_ASSIGN_OR_RETURN(const int64_t tokens, engine.CountPrompt(content));
  embedded.tokens = static_cast<size_t>(tokens);
  return embedded;
}

// Embeds items together, the texts among them in common steps.
Result<std::vector<EmbeddedItem>> EmbedGroup(Engine& engine, const EmbedFlags& flags,
                                             std::span<const EmbedItem> items, size_t first) {
  const auto in_item = [first](Error error, size_t k) {
    return tl::unexpected(std::move(error).WithContext(fmt::format("text {}", first + k)));
  };
  std::vector<EmbeddedItem> embedded(items.size());
  std::vector<std::vector<int32_t>> ids;
  std::vector<size_t> places;  // of these texts among the items
  for (size_t k = 0; k < items.size(); ++k) {
    if (!items[k].media.empty()) {
      auto one = EmbedMedia(engine, flags, items[k]);
      if (!one) return in_item(std::move(one).error(), k);
      embedded[k] = *std::move(one);
      continue;
    }
    RL_ASSIGN_OR_RETURN(ids.emplace_back(), engine.EmbeddingTokens(items[k].text, flags.task));
    places.push_back(k);
  }
  auto vectors = engine.EmbedEach(ids, {.dimensions = flags.dimensions});
  for (size_t i = 0; i < vectors.size(); ++i) {
    if (!vectors[i]) return in_item(std::move(vectors[i]).error(), places[i]);
    embedded[places[i]] = {*std::move(vectors[i]), ids[i].size()};
  }
  return embedded;
}

Result<int> EmbedItems(const EmbedFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const std::vector<EmbedItem> items, ReadEmbedItems(flags.input));
  RL_ASSIGN_OR_RETURN(const auto engine, OpenEngine(flags.config, console));
  const int64_t width = engine->info().embedding_width;
  VectorWriter writer(console, flags);
  RL_RETURN_IF_ERROR(writer.Begin(items, flags.dimensions > 0 ? flags.dimensions : width));
  Progress progress(console, "embed");
  for (size_t first = 0; first < items.size(); first += kTextsTogether) {
    const size_t end = std::min(first + kTextsTogether, items.size());
    RL_ASSIGN_OR_RETURN(
        const std::vector<EmbeddedItem> group,
        EmbedGroup(*engine, flags, std::span(items).subspan(first, end - first), first));
    for (size_t k = 0; k < group.size(); ++k) {
      RL_RETURN_IF_ERROR(writer.Add(first + k, group[k].tokens, group[k].values));
    }
    if (!flags.out.empty()) progress.Update(static_cast<int64_t>(end), std::ssize(items));
  }
  progress.Clear();
  RL_RETURN_IF_ERROR(writer.Finish());
  if (!flags.out.empty()) {
    console.Note(fmt::format("wrote {} embeddings to '{}'", items.size(), flags.out));
  }
  return 0;
}

void AddEmbedInputOptions(CLI::App& command, EmbedInputFlags& flags) {
  command
      .add_option("TEXT", flags.texts,
                  "Texts; with - or without them and --file, each line of stdin is one")
      ->option_text(" ");
  command.add_option("-f,--file", flags.files, "A text, or - for stdin; may be repeated")
      ->allow_extra_args(false)
      ->option_text("FILE");
  command.add_flag("--jsonl", flags.json_lines,
                   "Files and stdin have a line for each vector: a string, or {\"text\": ..., "
                   "\"images\": [FILE, ...], \"audio\": [FILE, ...]}");
  command
      .add_option("--image", flags.images,
                  "A picture before the TEXT, if there is one: all of it is one vector; may be "
                  "repeated")
      ->allow_extra_args(false)
      ->option_text("FILE");
  command.add_option("--audio", flags.sounds, "A sound, in the same way, after pictures")
      ->allow_extra_args(false)
      ->option_text("FILE");
}

}  // namespace

void AddEmbedCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<EmbedFlags>();
  CLI::App* command = app.add_subcommand("embed", "Texts, pictures and sounds as vectors");
  AddEmbedInputOptions(*command, flags->input);
  AddImageTokensOption(*command, flags->config);
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
  AddTowerOption(*command, flags->config);
  command->footer(R"(Examples:
  rullama embed -m embeddinggemma.gguf --task query "What is war?"
  rullama embed -m embeddinggemma.gguf --task document -f a.txt -f b.txt --dimensions 256
  rullama embed -m embeddinggemma.gguf --task document --jsonl --out docs.npy < docs.jsonl
  rullama embed -m embeddinggemma-2.gguf --mmproj mmproj.gguf --image cat.jpg "A cat")");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return EmbedItems(*flags, context.console); };
  });
}

}  // namespace rullama::cli
