// rullama backends: what was found, loaded, refused and why.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/command.h"
#include "cli/commands/json_text.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "core/base/size_text.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

const char* NameOfState(PluginState state) {
  switch (state) {
    case PluginState::kLoaded:
      return "loaded";
    case PluginState::kRefused:
      return "refused";
    case PluginState::kShadowed:
      return "shadowed";
  }
  return "unknown";
}

const char* NameOfType(rl_device_type type) {
  switch (type) {
    case RL_DEVICE_CPU:
      return "cpu";
    case RL_DEVICE_GPU:
      return "gpu";
    case RL_DEVICE_INTEGRATED_GPU:
      return "integrated gpu";
    case RL_DEVICE_SOFTWARE:
      return "software rasteriser";
    case RL_DEVICE_OTHER:
      return "other";
  }
  return "other";
}

json DeviceAsJson(const DeviceDescription& device, size_t index) {
  return {{"index", index},
          {"name", device.name},
          {"driver", device.driver},
          {"type", NameOfType(device.type)},
          {"memory_total", device.memory_total},
          {"memory_free", device.memory_free},
          {"max_buffer_bytes", device.max_buffer_bytes},
          {"deterministic", device.deterministic}};
}

json OptionAsJson(const OptionDescription& option) {
  return {{"name", option.name},
          {"values", option.values},
          {"default", option.initial},
          {"meaning", option.meaning}};
}

json ListingAsJson(const PluginListing& listing) {
  json entry = {{"name", listing.name},
                {"state", NameOfState(listing.state)},
                {"path", listing.path.string()},
                {"source", listing.source}};
  if (listing.error) {
    entry["error"] = {{"code", listing.error->id}, {"message", listing.error->message}};
  }
  if (listing.state == PluginState::kShadowed) entry["shadowed_by"] = listing.shadowed_by;
  if (!listing.plugin) return entry;
  const auto [major, minor] = listing.plugin->abi_version();
  entry["version"] = listing.plugin->version();
  entry["abi"] = fmt::format("{}.{}", major, minor);
  entry["build"] = listing.plugin->build();
  entry["options"] = json::array();
  const auto options = listing.plugin->ListOptions();
  if (!options) {
    entry["error"] = {{"code", options.error().id}, {"message", options.error().message}};
  } else {
    for (const OptionDescription& option : *options) {
      entry["options"].push_back(OptionAsJson(option));
    }
  }
  entry["devices"] = json::array();
  const auto list = listing.plugin->ListDevices();
  if (!list) {
    entry["reason"] = list.error().ToString();
    return entry;
  }
  if (list->devices.empty()) entry["reason"] = list->reason;
  for (size_t i = 0; i < list->devices.size(); ++i) {
    entry["devices"].push_back(DeviceAsJson(list->devices[i], i));
  }
  return entry;
}

// 0 stands for a number that the driver does not tell.
std::string MemoryText(uint64_t total, uint64_t available) {
  if (total == 0) return {};
  if (available == 0) return fmt::format(", {}, free unknown", SizeText(total));
  return fmt::format(", {} of {} free", SizeText(available), SizeText(total));
}

// `verbose`: options as well.
std::string TextOf(const json& entry, bool verbose) {
  const std::string path = entry["path"].get<std::string>();
  std::string text = fmt::format(
      "{}: {} ({}{})\n", entry["name"].get<std::string>(), entry["state"].get<std::string>(),
      path.empty() ? "" : path + ", from ", entry["source"].get<std::string>());
  if (entry.contains("error")) {
    text += fmt::format("  {} [{}]\n", entry["error"]["message"].get<std::string>(),
                        entry["error"]["code"].get<std::string>());
  }
  if (entry.contains("shadowed_by")) {
    text += fmt::format("  {} was found first\n", entry["shadowed_by"].get<std::string>());
  }
  if (entry.contains("version")) {
    text += fmt::format("  version {}, ABI {}, {}\n", entry["version"].get<std::string>(),
                        entry["abi"].get<std::string>(), entry["build"].get<std::string>());
  }
  if (entry.contains("reason")) {
    text += fmt::format("  no device: {}\n", entry["reason"].get<std::string>());
  }
  for (const json& device : entry.value("devices", json::array())) {
    text += fmt::format("  device {}: {} ({}; {})", device["index"].get<size_t>(),
                        device["name"].get<std::string>(), device["type"].get<std::string>(),
                        device["driver"].get<std::string>());
    text +=
        MemoryText(device["memory_total"].get<uint64_t>(), device["memory_free"].get<uint64_t>());
    text += '\n';
  }
  if (!verbose) return text;
  for (const json& option : entry.value("options", json::array())) {
    text += fmt::format("  option {}: {} (default: {})\n    {}\n",
                        option["name"].get<std::string>(), option["values"].get<std::string>(),
                        option["default"].get<std::string>(), option["meaning"].get<std::string>());
  }
  return text;
}

Result<int> ListBackends(const ConfigFlags& flags, bool as_json, Console& console) {
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(flags));
  const auto registry = MakeRegistry(loaded.config.values(), loaded.environment, flags.plugins);
  json entries = json::array();
  for (const PluginListing& listing : registry->List()) entries.push_back(ListingAsJson(listing));
  const Status named = registry->CheckNamedByUser();
  registry->Shutdown();
  if (as_json) {
    RL_RETURN_IF_ERROR(console.Write(JsonLine({{"backends", entries}})));
  } else {
    for (const json& entry : entries)
      RL_RETURN_IF_ERROR(console.Write(TextOf(entry, flags.verbose)));
  }
  // A plugin that the user named has to work, so its failure is an error and not only a line of
  // output.
  RL_RETURN_IF_ERROR(named);
  return 0;
}

}  // namespace

void AddBackendsCommand(CLI::App& app, CommandContext& context) {
  struct Flags {
    ConfigFlags config;
    bool json = false;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("backends", "List backends and devices of this machine");
  AddBackendOptions(*command, flags->config);
  command->add_flag("-v,--verbose", flags->config.verbose, "With the options that each takes");
  command->add_flag("--json", flags->json, "As one JSON object");
  command->footer(R"(Examples:
  rullama backends
  rullama backends -v          # with the options that each takes (backend.options)
  rullama backends --plugin ./librullama_backend_mine.so --json)");
  command->callback([flags, &context] {
    context.action = [flags, &context] {
      return ListBackends(flags->config, flags->json, context.console);
    };
  });
}

}  // namespace rullama::cli
