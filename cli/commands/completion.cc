#include "cli/commands/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cli/commands/arguments.h"
#include "cli/commands/loading.h"
#include "cli/commands/option_words.h"
#include "cli/commands/pulling.h"
#include "core/ollama/list.h"
#include "downloads/hub_cache.h"

namespace rullama::cli {
namespace {

struct Candidate {
  std::string word;
  std::string description;
};

struct Candidates {
  std::vector<Candidate> words;
  bool files = false;
};

void AddModelNames(Candidates& candidates) {
  // A store that cannot be read has nothing to offer; the command itself says why.
  const auto entries = ListOllamaModels(OllamaStoreOptions::FromEnvironment());
  if (!entries) return;
  for (const OllamaEntry& entry : *entries) {
    candidates.words.push_back({entry.name.ToString(), "model of Ollama"});
  }
  for (const downloads::CachedHubModel& model : downloads::ListHubCache(ProcessHubPlaces())) {
    candidates.words.push_back({model.name.ToString(), "model of the Hub"});
  }
}

void AddBackendNames(Candidates& candidates, const std::string& prefix) {
  const auto registry = MakeRegistry({}, {}, {});
  for (const std::string& name : registry->Names()) {
    candidates.words.push_back({prefix + name, "backend"});
  }
}

// The candidates for the value of `option`, of which `text` has been typed.
Candidates ValuesOf(const CLI::Option& option, const std::string& text) {
  Candidates candidates;
  const std::string value = ValueWord(option);
  for (const std::string& choice : ChoicesOf(option)) candidates.words.push_back({choice, ""});
  if (!candidates.words.empty()) return candidates;
  if (option.check_name("--backend")) {
    AddBackendNames(candidates, "");
    candidates.words.push_back({"auto", "the best device"});
  } else if (option.check_name("--backends")) {
    AddBackendNames(candidates, text.substr(0, text.rfind(',') + 1));
  } else if (value == "FILE|NAME" || value == "MODEL") {
    AddModelNames(candidates);
    candidates.files = true;
  } else {
    // TEXT is CLI11's word for a value that no other word describes.
    candidates.files = value == "FILE" || value == "IN" || value == "OUT" || value == "FOLDER" ||
                       (value == "TEXT" && option.get_option_text().empty());
  }
  return candidates;
}

void AddOptions(const CLI::App& command, std::string_view current, Candidates& candidates) {
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      candidates.words.push_back({"--" + name, option->get_description()});
    }
    if (current != "-") continue;
    for (const std::string& name : option->get_snames()) {
      candidates.words.push_back({"-" + name, option->get_description()});
    }
  }
}

// The position after the words of a command, before the current one.
struct Place {
  const CLI::Option* needs_value = nullptr;  // the last word is this option
  size_t positionals = 0;                    // words that are neither options nor their values
  bool only_positionals = false;             // after "--"
};

Place Walk(const CLI::App& command, const std::vector<std::string>& words) {
  Place place;
  for (const std::string& word : words) {
    if (place.needs_value != nullptr) {
      place.needs_value = nullptr;
    } else if (place.only_positionals || word.size() < 2 || word[0] != '-') {
      ++place.positionals;
    } else if (word == "--") {
      place.only_positionals = true;
    } else if (!word.starts_with("--") || word.find('=') == word.npos) {
      const CLI::Option* option = command.get_option_no_throw(FullOptionName(word));
      if (option != nullptr && option->get_items_expected_max() > 0) place.needs_value = option;
    }
  }
  return place;
}

Candidates OfCommand(const CLI::App& command, const std::vector<std::string>& before,
                     const std::string& current) {
  Candidates candidates;
  const Place place = Walk(command, before);
  if (place.needs_value != nullptr) return ValuesOf(*place.needs_value, current);
  if (current.starts_with('-') && !place.only_positionals) {
    const size_t equals = current.starts_with("--") ? current.find('=') : std::string::npos;
    if (equals == current.npos) {
      AddOptions(command, current, candidates);
      return candidates;
    }
    const CLI::Option* option = command.get_option_no_throw(current.substr(0, equals));
    if (option == nullptr) return candidates;
    for (Candidate& value : ValuesOf(*option, current.substr(equals + 1)).words) {
      candidates.words.push_back(
          {current.substr(0, equals + 1) + value.word, std::move(value.description)});
    }
    return candidates;
  }
  const auto positionals =
      command.get_options([](const CLI::Option* option) { return option->get_positional(); });
  if (positionals.empty()) return candidates;
  const bool more = positionals.back()->get_items_expected_max() > 1;
  if (place.positionals >= positionals.size() && !more) return candidates;
  return ValuesOf(*positionals[std::min(place.positionals, positionals.size() - 1)], current);
}

Candidates OfProgram(const CLI::App& app, const std::vector<std::string>& before,
                     const std::string& current) {
  Candidates candidates;
  const CLI::App& run = *app.get_subcommand("run");
  if (before.empty()) {
    for (const CLI::App* command : app.get_subcommands({})) {
      candidates.words.push_back({command->get_name(), command->get_description()});
    }
    if (!current.starts_with('-')) return candidates;
    // The command `run` may be left out.
    candidates = OfCommand(run, {}, current);
    if (current.find('=') == current.npos) AddOptions(app, current, candidates);
    return candidates;
  }
  if (before.front().starts_with('-')) return OfCommand(run, before, current);
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->check_name(before.front())) {
      return OfCommand(*command, {before.begin() + 1, before.end()}, current);
    }
  }
  return candidates;
}

}  // namespace

std::string CompletionText(const CLI::App& app, std::vector<std::string> words) {
  if (words.empty()) words.emplace_back();
  const std::string current = words.back();
  words.pop_back();
  Candidates candidates = OfProgram(app, words, current);
  std::ranges::stable_sort(candidates.words, {}, &Candidate::word);
  const auto same = [](const Candidate& a, const Candidate& b) { return a.word == b.word; };
  candidates.words.erase(std::unique(candidates.words.begin(), candidates.words.end(), same),
                         candidates.words.end());
  std::string text = candidates.files ? "files\n" : "words\n";
  for (const Candidate& candidate : candidates.words) {
    if (!candidate.word.starts_with(current)) continue;
    text += fmt::format("{}\t{}\n", candidate.word, candidate.description);
  }
  return text;
}

}  // namespace rullama::cli
