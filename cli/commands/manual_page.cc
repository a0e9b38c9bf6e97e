#include "cli/commands/manual_page.h"

#include <fmt/format.h>

#include <cctype>
#include <string_view>

#include "cli/commands/option_words.h"

namespace rullama::cli {
namespace {

// `text` as roff shows it letter by letter.
std::string Roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  // A line that begins with a dot or a quote would be a request.
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string Bold(std::string_view text) { return fmt::format("\\fB{}\\fR", Roff(text)); }
std::string Italic(std::string_view text) { return fmt::format("\\fI{}\\fR", Roff(text)); }

// "\fB\-m\fR, \fB\-\-model\fR \fIFILE|NAME\fR"
std::string OptionHead(const CLI::Option& option) {
  std::string head;
  const auto add = [&head](const std::string& name) {
    head += fmt::format("{}{}", head.empty() ? "" : ", ", Bold(name));
  };
  for (const std::string& name : option.get_snames()) add("-" + name);
  for (const std::string& name : option.get_lnames()) add("--" + name);
  if (head.empty()) return Italic(option.get_name(true));
  const std::string value = ValueWord(option);
  return value.empty() ? head : fmt::format("{} {}", head, Italic(value));
}

std::string OptionText(const CLI::Option& option) {
  std::string text = Roff(option.get_description());
  const std::vector<std::string> choices = ChoicesOf(option);
  bool named = true;
  for (const std::string& choice : choices) {
    named = named && option.get_description().find(choice) != std::string::npos;
  }
  if (!named) text += fmt::format(" ({})", Roff(fmt::format("{}", fmt::join(choices, ", "))));
  if (!option.get_default_str().empty()) {
    text += fmt::format(" [default {}]", Roff(option.get_default_str()));
  }
  return fmt::format(".TP\n{}\n{}\n", OptionHead(option), text);
}

// The options of a command, group by group as --help shows them.
std::string OptionsSection(const CLI::App& command) {
  std::string text = ".SH OPTIONS\n";
  const auto positionals =
      command.get_options([](const CLI::Option* option) { return option->get_positional(); });
  for (const CLI::Option* option : positionals) {
    if (option->get_lnames().empty()) text += OptionText(*option);
  }
  for (const std::string& group : command.get_groups()) {
    if (group.empty()) continue;
    std::string options;
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_group() == group && option->nonpositional()) options += OptionText(*option);
    }
    if (options.empty()) continue;
    if (group != "Options") text += fmt::format(".SS {}\n", Roff(group));
    text += options;
  }
  return text;
}

// The end of --help: paragraphs, of which those that begin with "Example" become a section.
std::string FooterSections(const std::string& footer) {
  std::string examples;
  std::string notes;
  bool in_examples = false;
  bool new_paragraph = true;
  for (const std::string& line : CLI::detail::split(footer, '\n')) {
    if (line == "Examples:" || line == "Example:") {
      in_examples = true;
    } else if (line.empty()) {
      in_examples = false;
      new_paragraph = true;
    } else if (in_examples) {
      examples += Roff(line.substr(line.find_first_not_of(' '))) + "\n";
    } else {
      notes += fmt::format("{}{}\n", new_paragraph ? ".PP\n" : "", Roff(line));
      new_paragraph = false;
    }
  }
  std::string text;
  if (!notes.empty()) text += ".SH NOTES\n" + notes.substr(std::string_view(".PP\n").size());
  if (!examples.empty()) text += fmt::format(".SH EXAMPLES\n.nf\n{}.fi\n", examples);
  return text;
}

std::string PageName(const CLI::App& command) { return "rullama-" + command.get_name(); }

// "what it does", from "What it does."
std::string Summary(std::string text) {
  if (text.starts_with("rullama ")) text.erase(0, std::string_view("rullama ").size());
  if (text.ends_with('.')) text.pop_back();
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0) {
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

std::string Head(const std::string& name, const std::string& description, const std::string& date) {
  std::string title = name;
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return fmt::format(
      ".\\\" Written by the program, from its options.\n"
      ".TH {} 1 {} \"rullama {}\" \"User Commands\"\n"
      ".SH NAME\n{} \\- {}\n",
      Roff(title), date, RULLAMA_VERSION, Roff(name), Roff(Summary(description)));
}

std::string ProgramPage(const CLI::App& app, const std::string& date) {
  std::string text = Head("rullama", app.get_description(), date);
  text += fmt::format(".SH SYNOPSIS\n{} [{}] [{} ...]\n", Bold("rullama"), Italic("COMMAND"),
                      Italic("OPTION"));
  text += ".SH COMMANDS\n";
  for (const CLI::App* command : app.get_subcommands({})) {
    text +=
        fmt::format(".TP\n{}(1)\n{}\n", Bold(PageName(*command)), Roff(command->get_description()));
  }
  return text + OptionsSection(app) + FooterSections(app.get_footer());
}

std::string CommandPage(const CLI::App& command, const std::string& date) {
  std::string text = Head(PageName(command), command.get_description(), date);
  text += fmt::format(".SH SYNOPSIS\n{} [{} ...]", Bold("rullama " + command.get_name()),
                      Italic("OPTION"));
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    const char* more = option->get_items_expected_max() > 1 ? " ..." : "";
    const std::string name = Italic(option->get_name(true)) + more;
    text += option->get_required() ? fmt::format(" {}", name) : fmt::format(" [{}]", name);
  }
  text += '\n';
  text += OptionsSection(command) + FooterSections(command.get_footer());
  return text + fmt::format(".SH SEE ALSO\n{}(1)\n", Bold("rullama"));
}

}  // namespace

std::vector<std::string> ManualPageNames(const CLI::App& app) {
  std::vector<std::string> names = {"rullama"};
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(PageName(*command));
  return names;
}

std::string ManualPage(const CLI::App& app, const std::string& name, const std::string& date) {
  if (name == "rullama") return ProgramPage(app, date);
  for (const CLI::App* command : app.get_subcommands({})) {
    if (PageName(*command) == name) return CommandPage(*command, date);
  }
  return {};
}

}  // namespace rullama::cli
