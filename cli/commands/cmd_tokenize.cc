// rullama tokenize, rullama detokenize: text to token ids and back, without running a model.
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "core/base/json_reader.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

constexpr size_t kMaxInputBytes = size_t{1} << 30;
constexpr size_t kMaxLineDepth = 8;

struct TokenizeFlags {
  ConfigFlags config;
  std::optional<std::string> text;  // -p
  std::vector<std::string> words;   // without an option
  bool no_bos = false;
  bool no_parse_special = false;
  bool show_special = false;
  bool json_lines = false;
};

Result<std::shared_ptr<const Tokenizer>> OpenTokenizer(const ConfigFlags& flags, ModelFile& model) {
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(flags));
  RL_ASSIGN_OR_RETURN(model, OpenModelFile(loaded.config.values().model.path));
  return MakeTokenizer(*model.file);
}

Result<json> ParseLine(std::string_view line, size_t number) {
  auto value = ReadJson(line, {.depth = kMaxLineDepth});
  if (value) return *std::move(value);
  return MakeError(ErrorKind::kUsage, "input.json", "line {} of stdin {}", number,
                   value.error().ToString());
}

// Calls `convert` with each line of stdin and writes its result as a line.
template <typename Convert>
Status ForEachLine(Console& console, std::string_view input, Convert convert) {
  for (size_t number = 1; !input.empty(); ++number) {
    const std::string_view line = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(line.size() + 1, input.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    RL_ASSIGN_OR_RETURN(const json value, ParseLine(line, number));
    RL_ASSIGN_OR_RETURN(const json result, convert(value, number));
    RL_RETURN_IF_ERROR(
        console.Write(result.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"));
  }
  return OkStatus();
}

Result<std::string> Input(const TokenizeFlags& flags) {
  if (flags.text && !flags.words.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.prompt", "there are two inputs: '{}' and that of -p",
                     flags.words.front());
  }
  if (flags.text) return *flags.text;
  if (!flags.words.empty()) return fmt::format("{}", fmt::join(flags.words, " "));
  return ReadStdin(kMaxInputBytes);
}

Result<int> Tokenize(Console& console, const TokenizeFlags& flags) {
  ModelFile model;
  RL_ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(flags.config, model));
  RL_ASSIGN_OR_RETURN(const std::string input, Input(flags));
  EncodeOptions options;
  options.parse_special = !flags.no_parse_special;
  options.add_bos = !flags.no_bos;
  if (!flags.json_lines) {
    RL_ASSIGN_OR_RETURN(const auto ids, tokenizer->Encode(input, options));
    RL_RETURN_IF_ERROR(console.Write(json(ids).dump() + "\n"));
    return 0;
  }
  RL_RETURN_IF_ERROR(
      ForEachLine(console, input, [&](const json& line, size_t number) -> Result<json> {
        if (!line.is_object() || !line.contains("text") || !line["text"].is_string()) {
          return MakeError(ErrorKind::kUsage, "input.json",
                           "line {} of stdin is not an object with a string \"text\"", number);
        }
        RL_ASSIGN_OR_RETURN(const auto ids,
                            tokenizer->Encode(line["text"].get_ref<const std::string&>(), options));
        return json(ids);
      }));
  return 0;
}

Result<std::vector<TokenId>> IdsOf(const json& line, size_t number) {
  std::vector<TokenId> ids;
  const bool array = line.is_array();
  for (const json& id : array ? line : json::array()) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return MakeError(ErrorKind::kUsage, "input.json", "line {} of stdin has {} for a token id",
                       number, id.dump(-1, ' ', true, json::error_handler_t::replace));
    }
    ids.push_back(id.get<TokenId>());
  }
  if (array) return ids;
  return MakeError(ErrorKind::kUsage, "input.json", "line {} of stdin is not an array of token ids",
                   number);
}

Result<int> Detokenize(Console& console, const TokenizeFlags& flags) {
  ModelFile model;
  RL_ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(flags.config, model));
  RL_ASSIGN_OR_RETURN(const std::string input, Input(flags));
  if (!flags.json_lines) {
    RL_ASSIGN_OR_RETURN(const auto ids, ParseIdList(input, "token ids"));
    RL_ASSIGN_OR_RETURN(const std::string text, tokenizer->Decode(ids, flags.show_special));
    RL_RETURN_IF_ERROR(console.Write(text));
    return 0;
  }
  RL_RETURN_IF_ERROR(
      ForEachLine(console, input, [&](const json& line, size_t number) -> Result<json> {
        RL_ASSIGN_OR_RETURN(const auto ids, IdsOf(line, number));
        RL_ASSIGN_OR_RETURN(const std::string text, tokenizer->Decode(ids, flags.show_special));
        return json{{"text", text}};
      }));
  return 0;
}

void AddInputOptions(CLI::App& command, TokenizeFlags& flags, const char* word,
                     const char* prompt_help) {
  command.add_option(word, flags.words, prompt_help)->option_text(" ");
  AddModelFileOptions(command, flags.config);
  command.add_option("-p,--prompt", flags.text, prompt_help)->option_text("TEXT");
}

}  // namespace

void AddTokenizeCommands(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* tokenize = app.add_subcommand("tokenize", "Text to token ids");
  AddInputOptions(*tokenize, *flags, "TEXT", "The text; without it, stdin");
  tokenize->add_flag("--no-bos", flags->no_bos, "Do not begin with the BOS token");
  tokenize->add_flag("--no-parse-special", flags->no_parse_special,
                     "Take the characters of markers such as <|turn> as plain text");
  tokenize->add_flag("--jsonl", flags->json_lines,
                     "Lines of {\"text\": ...} in, lines of id arrays out");
  tokenize->footer(R"(Examples:
  rullama tokenize -m gemma4:e2b "Why is the sky blue?"
  rullama tokenize -m model.gguf --no-bos < notes.txt)");
  tokenize->callback([flags, &context] {
    context.action = [flags, &context] { return Tokenize(context.console, *flags); };
  });

  CLI::App* detokenize = app.add_subcommand("detokenize", "Token ids to text");
  AddInputOptions(*detokenize, *flags, "IDS", "The ids, separated by commas or spaces; else stdin");
  detokenize->add_flag("--special", flags->show_special, "Show control tokens and markers");
  detokenize->add_flag("--jsonl", flags->json_lines,
                       "Lines of id arrays in, lines of {\"text\": ...} out");
  detokenize->footer(R"(Examples:
  rullama detokenize -m gemma4:e2b 2 445 1862
  rullama tokenize -m model.gguf "Once upon" | rullama detokenize -m model.gguf --special)");
  detokenize->callback([flags, &context] {
    context.action = [flags, &context] { return Detokenize(context.console, *flags); };
  });
}

}  // namespace rullama::cli
