#include "cli/commands/arguments.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>

#include "cli/commands/foreign_words.h"
#include "core/config/nearest_key.h"
#include "core/config/value_codec.h"

namespace rullama::cli {
namespace {

constexpr std::array<std::string_view, 3> kColorWords = {"auto", "always", "never"};
constexpr std::array<std::string_view, 5> kFlashWords = {"auto", "on", "off", "1", "0"};
constexpr const char* kSpelledOut[][2] = {
    {"-sys", "--system"},          {"-ngl", "--gpu-layers"},
    {"-fa", "--flash-attn"},       {"-ctk", "--cache-type-k"},
    {"-ctv", "--cache-type-v"},    {"-cnv", "--conversation"},
    {"-jf", "--json-schema-file"}, {"-ncmoe", "--n-cpu-moe"},
    {"-cmoe", "--cpu-moe"},        {"-dev", "--devices"},
    {"-ts", "--tensor-split"},     {"-sm", "--split-mode"},
    {"-mg", "--main-gpu"},         {"-md", "--draft-model"},
    {"-np", "--parallel"},         {"-lr", "--lr"},
    {"-lr-min", "--lr-min"},       {"-wd", "--weight-decay"},
    {"-hf", "--hf-repo"},          {"-hfr", "--hf-repo"},
    {"-epochs", "--epochs"},       {"-val-split", "--val-split"},
};

const CLI::Option* FindOption(const CLI::App& command, const std::string& name) {
  return command.get_option_no_throw(name);
}

const CLI::App* FindCommand(const CLI::App& app, const std::string& name) {
  const auto commands = app.get_subcommands([&](const CLI::App* c) { return c->check_name(name); });
  return commands.empty() ? nullptr : commands.front();
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> LongOptionNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string Suggestion(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string nearest = NearestName(name, candidates);
  return nearest.empty() ? std::string() : "; did you mean '" + nearest + "'?";
}

// Whether someone may have meant a model where a command is expected.
bool LooksLikeModel(const std::string& word) {
  std::error_code ignored;
  return LooksLikeModelFile(word) || word.find_first_of(":/") != word.npos ||
         std::filesystem::exists(word, ignored);
}

Error UnknownCommand(const CLI::App& app, const std::string& word) {
  const auto error = [&word](const std::string& hint) {
    return Error{ErrorKind::kUsage, "usage.command",
                 fmt::format("there is no command '{}'{} (see rullama --help)", word, hint)};
  };
  if (const auto advice = AdviceOnCommand(word); !advice.empty()) {
    return error(fmt::format("; {}", advice));
  }
  if (LooksLikeModel(word)) return error(fmt::format("; did you mean 'rullama run {}'?", word));
  if (word.find(' ') != word.npos) return error("; a prompt is given with -p");
  return error(Suggestion(word, CommandNames(app)));
}

Error UnknownOption(const CLI::App& command, const std::string& name) {
  std::string hint;
  if (const auto advice = AdviceOnOption(command.get_name(), name); !advice.empty()) {
    hint = fmt::format("; {}", advice);
  } else if (!name.starts_with("--") && FindOption(command, name.substr(0, 2)) != nullptr &&
             name.find_first_of("0123456789") == 2) {
    hint = fmt::format("; write {} {}", name.substr(0, 2), name.substr(2));
  } else {
    // One dash or two: "-temp" is "--temp".
    const std::string with_dashes = name.starts_with("--") ? name : "-" + name;
    hint = Suggestion(with_dashes, LongOptionNames(command));
  }
  return {ErrorKind::kUsage, "usage.unknown_option",
          fmt::format("'{0}' has no option '{1}'{2} (see rullama {0} --help)", command.get_name(),
                      name, hint)};
}

// Several letters after one dash, which CLI11 does not take for a name, and options whose value may
// be left out.
void SpellOut(const CLI::App& command, std::vector<std::string>& words, size_t index) {
  std::string& word = words[index];
  const std::string full = FullOptionName(word);
  if (full != word && FindOption(command, full) != nullptr) word = full;
  const auto is_next = [&](std::span<const std::string_view> values) {
    return index + 1 < words.size() && std::ranges::find(values, words[index + 1]) != values.end();
  };
  if (word == "--color" && !is_next(kColorWords)) word = "--color=always";
  if (word == "--flash-attn" && !is_next(kFlashWords)) word = "--flash-attn=on";
}

Status CheckCount(const CLI::Option& option, const std::string& name, int count) {
  const bool once = option.get_items_expected_max() == 1 &&
                    option.get_multi_option_policy() == CLI::MultiOptionPolicy::Throw;
  if (!once || count < 2) return OkStatus();
  return MakeError(ErrorKind::kUsage, "usage.option", "{} is given {} times; give it once", name,
                   count);
}

// Every option with the value that follows it, before CLI11 takes options apart.
Status CheckWords(const CLI::App& command, std::vector<std::string>& words) {
  std::map<const CLI::Option*, int> given;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i].size() < 2 || words[i][0] != '-') continue;
    SpellOut(command, words, i);
    const size_t equals = words[i].starts_with("--") ? words[i].find('=') : std::string::npos;
    const std::string name = words[i].substr(0, equals);
    const CLI::Option* option = FindOption(command, name);
    if (option == nullptr) return tl::unexpected(UnknownOption(command, name));
    RL_RETURN_IF_ERROR(CheckCount(*option, name, ++given[option]));
    const auto values = static_cast<size_t>(option->get_items_expected_min());
    if (equals != std::string::npos && option->get_items_expected_max() == 0) {
      return MakeError(ErrorKind::kUsage, "usage.option", "{} takes no value, found '{}'", name,
                       words[i].substr(equals + 1));
    }
    if (equals != std::string::npos) continue;
    if (i + values >= words.size()) {
      return MakeError(ErrorKind::kUsage, "usage.option",
                       "{} needs a value{}{} (see rullama {} --help)", name,
                       option->get_option_text().empty() ? "" : ": ", option->get_option_text(),
                       command.get_name());
    }
    i += values;
  }
  return OkStatus();
}

Error MissingArguments(const CLI::App& command) {
  std::vector<std::string> missing;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_required() && option->count() == 0) {
      missing.push_back(option->get_name(option->get_positional(), !option->get_positional()));
    }
  }
  return {ErrorKind::kUsage, "usage.option",
          fmt::format("'{0}' also needs {1} (see rullama {0} --help)", command.get_name(),
                      fmt::join(missing, " and "))};
}

Error UnexpectedArgument(const CLI::App& command) {
  const std::vector<std::string> extra = command.remaining(true);
  return {ErrorKind::kUsage, "usage.unknown_option",
          fmt::format("'{0}' takes no argument '{1}' (see rullama {0} --help)", command.get_name(),
                      extra.empty() ? "" : extra.front())};
}

// Describes the expected value in words, from CLI11's name for a type and its check: "INT:INT in [1
// - 64]", "TEXT:{op,layer}"; "TEXT:=WORDS" of a check of ours that has them.
std::string ExpectedValue(const std::string& type_name) {
  const size_t colon = std::min(type_name.find(':'), type_name.size());
  const std::string type = type_name.substr(0, colon);
  const std::string check = type_name.substr(std::min(colon + 1, type_name.size()));
  if (check.starts_with('=')) return check.substr(1);
  std::string expected = type == "FLOAT" ? "a number" : "text";
  if (type == "INT" || type == "UINT") expected = "a whole number";
  if (check == "POSITIVE") return expected + " above 0";
  const size_t range = check.find('[');
  const size_t dash = check.find(" - ");
  if (check.starts_with('{')) {
    const std::string choices = check.substr(1, check.size() - 2);
    return "one of " + CLI::detail::find_and_replace(choices, ",", ", ");
  }
  if (range == check.npos || dash == check.npos) return expected;
  return fmt::format("{} from {} to {}", expected, check.substr(range + 1, dash - range - 1),
                     check.substr(dash + 3, check.size() - dash - 4));
}

// CLI11 writes "--name: REASON" for a value that a check refused, and "Could not convert: --name =
// value".
Error RefusedValue(const CLI::App& command, const CLI::ParseError& error) {
  std::string_view text = error.what();
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const bool named =
        text.starts_with(name + ": ") || text.starts_with("Could not convert: " + name + " =");
    if (!named || option->results().empty()) continue;
    return {ErrorKind::kUsage, "usage.option",
            fmt::format("{}: found '{}', expected {} (see rullama {} --help)", name,
                        option->results().back(), ExpectedValue(option->get_type_name()),
                        command.get_name())};
  }
  return {ErrorKind::kUsage, "usage.option", std::string(text)};
}

}  // namespace

Result<std::vector<std::string>> PrepareArguments(std::vector<std::string> words,
                                                  const CLI::App& app) {
  const bool about_program =
      !words.empty() && (words[0] == "--help" || words[0] == "-h" || words[0] == "--help-all" ||
                         words[0] == "--version");
  if (!about_program) {
    if (words.empty() || words[0].starts_with('-')) words.insert(words.begin(), "run");
    const CLI::App* command = FindCommand(app, words[0]);
    if (command == nullptr) return tl::unexpected(UnknownCommand(app, words[0]));
    std::vector<std::string> rest(words.begin() + 1, words.end());
    RL_RETURN_IF_ERROR(CheckWords(*command, rest));
    std::ranges::copy(rest, words.begin() + 1);
  }
  std::ranges::reverse(words);
  return words;
}

std::string FullOptionName(const std::string& name) {
  for (const auto& [habit, full] : kSpelledOut) {
    if (name == habit) return full;
  }
  return name;
}

Error DescribeParseError(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return UnexpectedArgument(command);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) return MissingArguments(command);
  return RefusedValue(command, error);
}

}  // namespace rullama::cli
