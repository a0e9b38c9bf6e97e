// The layout of --help: CLI11's, with one blank line between groups.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace rullama::cli {

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace rullama::cli
