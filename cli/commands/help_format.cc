#include "cli/commands/help_format.h"

#include <string_view>
#include <utility>

namespace rullama::cli {

std::string HelpFormat::make_help(const CLI::App* app, std::string name,
                                  CLI::AppFormatMode mode) const {
  constexpr std::string_view kTwoBlankLines = "\n\n\n";
  std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
  for (size_t at = text.find(kTwoBlankLines); at != text.npos; at = text.find(kTwoBlankLines, at)) {
    text.erase(at, 1);
  }
  return text;
}

}  // namespace rullama::cli
