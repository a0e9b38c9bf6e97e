#include "cli/commands/option_words.h"

#include <string_view>

namespace rullama::cli {
namespace {

// CLI11 keeps choices in the name of the type, "TEXT:{op,layer}".
constexpr std::string_view kChoicesBegin = ":{";

}  // namespace

std::string ValueWord(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  std::string text = CLI::detail::trim_copy(option.get_option_text());
  if (!text.empty()) return text;
  if (option.get_positional() && option.get_lnames().empty()) return option.get_name(true);
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find(kChoicesBegin);
  if (begin == type.npos || !type.ends_with('}')) return {};
  const size_t first = begin + kChoicesBegin.size();
  return CLI::detail::split(type.substr(first, type.size() - first - 1), ',');
}

void SetChoices(CLI::Option& option, const std::string& names, const std::string& word) {
  const std::string choices = CLI::detail::find_and_replace(names, ", ", ",");
  option.type_name("TEXT" + std::string(kChoicesBegin) + choices + "}")->option_text(word);
}

}  // namespace rullama::cli
