// Texts made from the schema: docs/configuration.md and `rullama config --show`.
#include <iterator>

#include "core/config/layered_config.h"
#include "core/config/schema.h"

namespace rullama {
namespace {

using Out = std::back_insert_iterator<std::string>;

constexpr std::string_view kIntroduction =
    R"(<!-- Generated from the schema in core/config; a test compares them. To regenerate:
     RULLAMA_UPDATE_DOCS=1 ./build/dev/bin/config_test --gtest_filter='SchemaDoc.*' -->
# Configuration

rullama reads one YAML file, given with `--config` or in the environment variable `RULLAMA_CONFIG`.
Ready-made files are in [`configs/`](../configs). Every key is optional.

A value comes from the first of these that gives it:

1. a command line flag,
2. an environment variable (`RULLAMA_BACKEND`),
3. the YAML file,
4. the model file (sampler values under `general.sampling.*`),
5. the default named below.

`rullama config --show` prints every value and where it came from. When a flag or the environment
chooses another backend than the file, the file's `backend.device` and `backend.options` are not
used: they were meant for the other one.

An unknown key, a key given twice and a value of the wrong type or range are errors. Numbers are
decimal, with a point. A file has at most 1 MiB, 32 levels and one document; anchors, aliases, tags
and tabs in the indentation are refused. Errors name the file, line and column, end with a stable id
such as `[config.unknown_key]`, and make the program exit with code 2.
)";

constexpr std::string_view kEnvironmentSection = R"(
## Environment

| variable | meaning |
|-|-|
| `RULLAMA_CONFIG` | configuration file used when there is no `--config` |
| `RULLAMA_BACKEND` | overrides `backend.name` |
| `RULLAMA_PLUGIN_PATH` | plugin files or directories, separated by colons, searched after `--plugin` and `plugins.paths` |
| `RULLAMA_API_KEY` | keys of clients of `rullama serve`, separated by commas |
| `RULLAMA_LOG` | log level: `trace`, `debug`, `info`, `warn`, `error` or `off`; from `warn` on there are no statistics and no progress |
| `RULLAMA_HISTORY` | file of the messages typed into chats, or `off`; without it `rullama/history` in `$XDG_STATE_HOME` or `~/.local/state` |

`RULLAMA_CONFIG` and `RULLAMA_PLUGIN_PATH` are ignored in a privileged process.
)";

void AppendBlock(const BlockSpec& block, Out out) {
  if (!block.fields.empty()) {
    fmt::format_to(out, "\n## {}\n\n{}\n\n", block.path, block.doc);
    fmt::format_to(out, "| key | value | default | meaning |\n|-|-|-|-|\n");
    for (const FieldSpec& field : block.fields) {
      fmt::format_to(out, "| `{}` | {} | {} | {} |\n", field.key, field.accepts, field.absent,
                     field.doc);
    }
  }
  for (const BlockSpec& child : block.blocks) AppendBlock(child, out);
}

void AppendField(const LayeredConfig& config, const FieldSpec& field, std::string_view indent,
                 Out out) {
  if (field.is_map) {
    fmt::format_to(out, "{}{}:\n", indent, field.key);
    for (const auto& [key, value] : field.print_entries(config.values())) {
      fmt::format_to(out, "{}  {}: {}  # {}\n", indent, key, value,
                     OriginName(config.origin(field.path + "." + key)));
    }
    return;
  }
  if (const auto value = field.print(config.values())) {
    fmt::format_to(out, "{}{}: {}  # {}\n", indent, field.key, *value,
                   OriginName(config.origin(field.path)));
  } else {
    fmt::format_to(out, "{}# {}: {}\n", indent, field.key, field.absent);
  }
}

void AppendValues(const LayeredConfig& config, const BlockSpec& block, size_t depth, Out out) {
  const std::string indent(depth * 2, ' ');
  for (const FieldSpec& field : block.fields) AppendField(config, field, indent, out);
  for (const BlockSpec& child : block.blocks) {
    fmt::format_to(out, "{}{}:\n", indent, child.key);
    AppendValues(config, child, depth + 1, out);
  }
}

}  // namespace

std::string SchemaAsMarkdown() {
  std::string text(kIntroduction);
  AppendBlock(ConfigSchema(), std::back_inserter(text));
  text += kEnvironmentSection;
  return text;
}

std::string LayeredConfig::ToYaml() const {
  std::string text;
  AppendValues(*this, ConfigSchema(), 0, std::back_inserter(text));
  return text;
}

}  // namespace rullama
