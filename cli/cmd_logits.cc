// rullama logits: the logits of every position, as a file of little-endian float32.
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/score.h"
#include "core/gguf/atomic_file.h"

namespace rullama::cli {
namespace {

constexpr size_t kMaxIdsBytes = size_t{256} << 20;

struct LogitsFlags {
  ConfigFlags config;
  std::string tokens_path;
  std::string out_path;
  int64_t chunk = 0;
};

Result<int> WriteLogits(const LogitsFlags& flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const std::string list, ReadTextFile(flags.tokens_path, kMaxIdsBytes));
  RL_ASSIGN_OR_RETURN(const auto ids, ParseIdList(list, fmt::format("'{}'", flags.tokens_path)));
  if (ids.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.prompt", "'{}' holds no token ids",
                     flags.tokens_path);
  }
  RL_ASSIGN_OR_RETURN(const auto engine, OpenScoringEngine(flags.config, flags.chunk, console));
  if (flags.config.verbose) engine->Describe(console);
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(flags.out_path));
  RL_RETURN_IF_ERROR(ScoreTokens(*engine, ids, [&file](int64_t, std::span<const float> logits) {
    return file.Append(std::as_bytes(logits));
  }));
  RL_RETURN_IF_ERROR(file.Commit());
  console.Note(fmt::format("wrote logits [{}, {}] to '{}'", ids.size(),
                           engine->model().gemma.vocabulary, flags.out_path));
  return 0;
}

}  // namespace

void AddLogitsCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<LogitsFlags>();
  CLI::App* command = app.add_subcommand("logits", "Write the logits of every position to a file");
  AddModelOptions(*command, flags->config);
  command
      ->add_option("--tokens-file", flags->tokens_path,
                   "Token ids: a JSON array, or separated by commas or white space")
      ->required()
      ->option_text("FILE");
  command->add_option("--out", flags->out_path, "float32 [tokens, vocabulary], little-endian")
      ->required()
      ->option_text("FILE");
  command->add_option("--chunk", flags->chunk, "Tokens per step")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->option_text("N");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return WriteLogits(*flags, context.console); };
  });
}

}  // namespace rullama::cli
