// rullama config: the values in force, and where each came from.
#include <memory>

#include "cli/commands/command.h"
#include "cli/commands/options.h"

namespace rullama::cli {

void AddConfigCommand(CLI::App& app, CommandContext& context) {
  struct Flags {
    ConfigFlags config;
    bool show = false;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("config", "Check a configuration and show its values and their origins");
  command->add_option("FILE", flags->config.config_path, "Configuration file, as with --config")
      ->option_text(" ");
  AddModelSettings(*command, flags->config);
  AddSamplerOptions(*command, flags->config);
  AddDraftOptions(*command, flags->config);
  command->add_flag("--show", flags->show, "Print every value and where it came from, as YAML");
  command->footer(R"(Examples:
  rullama config configs/tiny.yaml                  checks the file
  rullama config configs/tiny.yaml --temp 0.5 --show)");
  command->callback([flags, &context] {
    context.action = [flags, &context]() -> Result<int> {
      RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(flags->config));
      for (const std::string& notice : loaded.config.notices()) context.console.Note(notice);
      const std::string file = flags->config.config_path.value_or("");
      RL_RETURN_IF_ERROR(context.console.Write(
          flags->show ? loaded.config.ToYaml()
                      : fmt::format("{}ok\n", file.empty() ? "" : "'" + file + "': ")));
      return 0;
    };
  });
}

}  // namespace rullama::cli
