// rullama logits: the logits of every position, as a file of little-endian float32.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/canvas_logits.h"
#include "cli/bench/score.h"
#include "cli/chat/media_prompt.h"
#include "cli/commands/command.h"
#include "cli/commands/options.h"
#include "core/gguf/atomic_file.h"

namespace rullama::cli {
namespace {

constexpr size_t kMaxIdsBytes = size_t{256} << 20;
constexpr size_t kMaxLogitsBytes = size_t{4} << 30;

struct LogitsFlags {
  ConfigFlags config;
  std::string tokens_path;
  std::string parts_path;
  std::string out_path;
  int64_t chunk = 0;
  std::string canvas_path;
  std::string condition_path;
  std::optional<float> temperature;
};

Result<std::vector<int32_t>> ReadIds(const std::string& path) {
  RL_ASSIGN_OR_RETURN(const std::string list, ReadTextFile(path, kMaxIdsBytes));
  return ParseIdList(list, fmt::format("'{}'", path));
}

// Little-endian float32.
Result<std::vector<float>> ReadFloats(const std::string& path) {
  RL_ASSIGN_OR_RETURN(const std::string bytes, ReadTextFile(path, kMaxLogitsBytes));
  if (bytes.size() % sizeof(float) != 0) {
    return MakeError(ErrorKind::kUsage, "usage.canvas",
                     "'{}' has {} bytes, expected float32 numbers", path, bytes.size());
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Result<int> WriteCanvasLogits(const LogitsFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const auto prefix, ReadIds(flags.tokens_path));
  RL_ASSIGN_OR_RETURN(const auto canvas, ReadIds(flags.canvas_path));
  std::vector<float> previous;
  if (!flags.condition_path.empty()) {
    RL_ASSIGN_OR_RETURN(previous, ReadFloats(flags.condition_path));
  }
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(flags.out_path));
  ModelSessionOptions options;
  options.outputs = GraphOutputs::kAllLogits;
  options.max_t = flags.chunk;
  RL_ASSIGN_OR_RETURN(const auto engine, OpenModelSession(flags.config, options, console));
  if (flags.config.verbose) DescribeSession(*engine, console);
  RL_ASSIGN_OR_RETURN(const auto logits,
                      CanvasLogits(*engine, {.prefix = prefix,
                                             .canvas = canvas,
                                             .previous = previous,
                                             .temperature = flags.temperature.value_or(1)}));
  RL_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(logits))));
  RL_RETURN_IF_ERROR(file.Commit());
  console.Note(fmt::format("wrote logits [{}, {}] to '{}'", canvas.size(),
                           engine->model().facts().vocabulary, flags.out_path));
  return 0;
}

Result<int> WriteMediaLogits(const LogitsFlags& flags, Console& console) {
  constexpr size_t kMaxPartsBytes = size_t{64} << 20;
  RL_ASSIGN_OR_RETURN(const std::string parts, ReadTextFile(flags.parts_path, kMaxPartsBytes));
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(flags.out_path));
  RL_ASSIGN_OR_RETURN(ConfiguredModel loaded, LoadModel(flags.config, console));
  RL_ASSIGN_OR_RETURN(const MediaPrompt prompt, ReadParts(parts, loaded.model));
  for (const std::string& medium : prompt.files) RL_RETURN_IF_ERROR(file.CheckIsNot(medium));
  const ModelFacts facts = loaded.model.facts();
  ModelSessionOptions options;
  options.outputs = GraphOutputs::kAllLogits;
  options.max_t =
      flags.chunk > 0
          ? flags.chunk
          : ScoreRows(facts.vocabulary,
                      loaded.model.config().context.prefill_chunk.value_or(kMinAutoRows));
  options.media_rows = MediaRowsOf(prompt, facts, options.max_t);
  options.plugin_paths = flags.config.plugins;
  RL_ASSIGN_OR_RETURN(const auto engine,
                      ModelSession::Open(std::move(loaded.model), options,
                                         ProcessHooks(loaded.environment), console));
  if (flags.config.verbose) DescribeSession(*engine, console);
  RL_RETURN_IF_ERROR(ScoreMediaPrompt(*engine, prompt, [&file](std::span<const float> logits) {
    return file.Append(std::as_bytes(logits));
  }));
  RL_RETURN_IF_ERROR(file.Commit());
  console.Note(fmt::format("wrote logits [{}, {}] to '{}'", prompt.ids.size(), facts.vocabulary,
                           flags.out_path));
  return 0;
}

Result<int> WriteLogits(const LogitsFlags& flags, Console& console) {
  if (!flags.parts_path.empty()) return WriteMediaLogits(flags, console);
  if (flags.tokens_path.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "there is neither --tokens-file nor --parts, expected one of them");
  }
  if (!flags.canvas_path.empty()) return WriteCanvasLogits(flags, console);
  RL_ASSIGN_OR_RETURN(const auto ids, ReadIds(flags.tokens_path));
  if (ids.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.prompt", "'{}' holds no token ids",
                     flags.tokens_path);
  }
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(flags.out_path));
  RL_ASSIGN_OR_RETURN(const auto engine, OpenScoringSession(flags.config, flags.chunk, console));
  if (flags.config.verbose) DescribeSession(*engine, console);
  RL_RETURN_IF_ERROR(ScoreTokens(*engine, ids, [&file](int64_t, std::span<const float> logits) {
    return file.Append(std::as_bytes(logits));
  }));
  RL_RETURN_IF_ERROR(file.Commit());
  console.Note(fmt::format("wrote logits [{}, {}] to '{}'", ids.size(),
                           engine->model().facts().vocabulary, flags.out_path));
  return 0;
}

}  // namespace

void AddLogitsCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<LogitsFlags>();
  CLI::App* command = app.add_subcommand("logits", "Write the logits of every position to a file");
  AddModelOptions(*command, flags->config);
  AddTowerOption(*command, flags->config);
  AddImageTokensOption(*command, flags->config);
  CLI::Option* tokens =
      command
          ->add_option("--tokens-file", flags->tokens_path,
                       "Token ids: a JSON array, or separated by commas or white space")
          ->option_text("FILE");
  CLI::Option* parts =
      command
          ->add_option("--parts", flags->parts_path,
                       "Instead of ids: a JSON list of texts, {\"image\": FILE} and "
                       "{\"audio\": FILE}")
          ->excludes(tokens)
          ->option_text("FILE");
  command->add_option("--out", flags->out_path, "float32 [tokens, vocabulary], little-endian")
      ->required()
      ->option_text("FILE");
  command->add_option("--chunk", flags->chunk, "Tokens per step")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->option_text("N");
  CLI::Option* canvas =
      command
          ->add_option("--canvas-ids", flags->canvas_path,
                       "Tokens of a canvas that follows them: the logits of one denoising pass "
                       "(DiffusionGemma)")
          ->excludes(parts)
          ->option_text("FILE");
  CLI::Option* condition =
      command
          ->add_option("--self-cond", flags->condition_path,
                       "Logits of the step before, float32 [canvas, vocabulary], to condition on")
          ->needs(canvas)
          ->option_text("FILE");
  command->add_option("--temperature", flags->temperature, "Temperature of that step")
      ->needs(condition)
      ->check(CLI::Range(1e-4F, 100.0F))
      ->option_text("T");
  condition->needs("--temperature");
  command->footer(R"(Example:
  rullama tokenize -m model.gguf "The prince" > ids.json
  rullama logits -m model.gguf --tokens-file ids.json --out logits.f32)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return WriteLogits(*flags, context.console); };
  });
}

}  // namespace rullama::cli
