// rullama serve: answers programs over HTTP until it is told to end.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/signals.h"
#include "engine/api/engine.h"
#include "server/api.h"
#include "server/http_server.h"

namespace rullama::cli {
namespace {

constexpr int64_t kDefaultSlots = 4;
// Running answers have this long after SIGTERM; the process ends after five seconds at the latest.
constexpr std::chrono::milliseconds kDrainTime{4000};

struct ServeFlags {
  ConfigFlags config;
  server::HttpServerOptions http = {
      .host = "127.0.0.1", .port = 11435, .limits = {}, .allowed_hosts = {}};
  bool no_auth = false;
};

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

EngineOptions OptionsOf(const ConfigFlags& flags, const LoadedConfig& loaded, Console& console) {
  EngineOptions options;
  if (flags.config_path) options.config_file = *flags.config_path;
  for (const ConfigFlags::Setting& setting : flags.settings) {
    options.settings.push_back({setting.path, setting.text});
  }
  if (loaded.config.origin("context.slots") == Origin::kDefault) {
    options.settings.push_back({"context.slots", fmt::format("{}", kDefaultSlots)});
  }
  options.adapters = flags.adapters;
  options.plugin_paths = flags.plugins;
  options.log = [&console](LogLevel level, std::string_view text) {
    level == LogLevel::kNote ? console.Note(text) : console.Warn(text);
  };
  return options;
}

// The name under which clients find the model: as in Ollama's store, or the file without its
// ending.
std::string ModelId(const std::string& model) {
  if (!model.ends_with(".gguf") && !model.starts_with('/')) return model;
  return std::filesystem::path(model).stem().string();
}

std::time_t ModelTime(const std::string& model) {
  struct stat status {};
  return ::stat(model.c_str(), &status) == 0 ? status.st_mtime : std::time(nullptr);
}

void WaitForSignal() {
  const auto cancelled = CancelFlag();
  while (!cancelled->load()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

Result<int> Serve(const ServeFlags& flags, Console& console) {
  if (!IsLoopback(flags.http.host) && !flags.no_auth) {
    return MakeError(ErrorKind::kUsage, "server.no_key",
                     "--host {} lets other machines in, and this server asks for no key; stay on "
                     "127.0.0.1, or give --insecure-no-auth",
                     flags.http.host);
  }
  if (flags.no_auth) console.Warn("everybody who reaches this server may use it");
  if (flags.config.quiet) console.set_verbosity(Verbosity::kWarnings);
  if (flags.config.verbose) console.set_verbosity(Verbosity::kNotes);
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(flags.config));
  RL_ASSIGN_OR_RETURN(const auto engine, Engine::Open(OptionsOf(flags.config, loaded, console)));
  const ModelInfo& info = engine->info();
  const std::string id = ModelId(info.name);
  server::Api api(engine, {.model_id = id,
                           .model_time = ModelTime(info.name),
                           .version = RULLAMA_VERSION,
                           .max_queue = 64});
  RL_ASSIGN_OR_RETURN(const auto http,
                      server::HttpServer::Start(flags.http, [&api](server::Exchange& exchange) {
                        api.Handle(exchange);
                      }));
  console.WriteError(fmt::format("listening on http://{}:{} ({} on {}, {} slots of {} tokens)\n",
                                 flags.http.host, http->port(), id, info.backend, info.slots,
                                 info.capacity));
  WaitForSignal();
  api.Drain();
  http->StopListening();
  http->WaitUntilIdle(kDrainTime);
  return 0;
}

}  // namespace

void AddServeCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App* command =
      app.add_subcommand("serve", "Answer programs over HTTP, in the form of the OpenAI API");
  AddModelOptions(*command, flags->config);
  AddSamplerOptions(*command, flags->config);
  AddSetting(*command, flags->config, "--slots,--parallel", "context.slots",
             "Requests that run at the same time [default 4]");
  command->add_option("--host", flags->http.host, "Address to listen on [default 127.0.0.1]")
      ->option_text("ADDRESS");
  command
      ->add_option("--port", flags->http.port, "Port to listen on; 0: any free one [default 11435]")
      ->option_text("N");
  command
      ->add_option("--allowed-host", flags->http.allowed_hosts,
                   "Name of this server that clients may use, besides addresses and localhost")
      ->option_text("NAME");
  command->add_flag("--insecure-no-auth", flags->no_auth,
                    "Let other machines in, although no key is asked for");
  command->footer(R"(Examples:
  rullama serve -m gemma4:e2b
  rullama serve -m model.gguf --backend vulkan --slots 16 --port 8080
  curl http://127.0.0.1:11435/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hi"}]}'

docs/server.md lists the endpoints.)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return Serve(*flags, context.console); };
  });
}

}  // namespace rullama::cli
