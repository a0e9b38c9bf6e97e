// rullama serve: answers programs over HTTP until it is told to end.
#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cli/chat/prompt_log.h"
#include "cli/commands/command.h"
#include "cli/commands/options.h"
#include "cli/commands/serve_end.h"
#include "cli/commands/serve_pull.h"
#include "cli/commands/serve_tools.h"
#include "cli/commands/served_models.h"
#include "cli/reports/trace.h"
#include "cli/terminal/signals.h"
#include "core/base/printable.h"
#include "core/base/size_text.h"
#include "downloads/hub_name.h"
#include "engine/media/media_budget.h"
#include "engine/scheduling/snapshot_store.h"
#include "server/api.h"
#include "server/http/http_server.h"
#include "server/slot_folder.h"
#include "server/web_folder.h"

namespace rullama::cli {
namespace {

struct ServeFlags {
  ConfigFlags config;
  std::vector<std::string> models;
  std::vector<std::string> api_keys;  // files
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  TraceFlags trace;
  std::string log_prompts;  // a file; empty: none
  std::string tools;        // a file of MCP servers; empty: none
  bool no_auth = false;
  bool adapters_off = false;  // --lora-init-without-apply
};

// Keeps what glibc's allocator holds from growing over days: each of its arenas keeps as much as
// its largest request once took, and it takes ever larger blocks, such as snapshots of prompts,
// from heaps that do not give them back. A limit on arenas or pages for smaller blocks would make
// the threads that compile kernels wait for each other (docs/lab/vulkan.md, "The start of a
// server").
void BoundHeap() {
#ifdef M_MMAP_THRESHOLD  // glibc
  constexpr int kBlockWithPages = 1 << 20;
  constexpr int kFreeAtTheEnd = 16 << 20;
  ::mallopt(M_MMAP_THRESHOLD, kBlockWithPages);
  ::mallopt(M_TRIM_THRESHOLD, kFreeAtTheEnd);
#endif
}

// Gives freed pages of all arenas back to the system, once a minute.
class HeapTrimmer {
 public:
  void Tick() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + kPeriod;
#ifdef M_MMAP_THRESHOLD  // glibc
    ::malloc_trim(0);
#endif
  }

 private:
  static constexpr std::chrono::minutes kPeriod{1};
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + kPeriod;
};

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Returns when the program is told to end, or with the error that `failure` returns. SIGHUP calls
// `reload`.
Status WaitForEnd(const std::function<void()>& reload,
                  const std::function<std::optional<Error>()>& failure) {
  const auto cancelled = CancelFlag();
  NoticeHangups();
  HeapTrimmer trimmer;
  while (!cancelled->load()) {
    trimmer.Tick();
    if (auto error = failure()) return tl::unexpected(*std::move(error));
    if (TakeHangup()) reload();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return OkStatus();
}

// Makes the lists of the command line part of the configuration.
Status ApplyLists(const ServeFlags& flags, LayeredConfig& config) {
  const struct {
    const char* path;
    const std::vector<std::string>& items;
    const char* flag;
  } lists[] = {{"server.models", flags.models, "--model"},
               {"server.api_keys", flags.api_keys, "--api-key-file"},
               {"server.allowed_hosts", flags.allowed_hosts, "--allowed-host"},
               {"server.allowed_origins", flags.allowed_origins, "--allowed-origin"}};
  for (const auto& list : lists) {
    if (list.items.empty()) continue;
    RL_RETURN_IF_ERROR(config.SetList(list.path, list.items, Origin::kFlag, list.flag));
  }
  return OkStatus();
}

void WarnOfWriters(const std::string& file, Console& console) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0 || (status.st_mode & S_IWOTH) == 0) return;
  console.Warn(fmt::format(
      "everybody on this machine may write to the file of keys '{}'; make it yours: chmod 600",
      ShownName(file)));
}

// Adds the keys of the configuration to `keys`.
Result<server::ApiKeys> ReadKeys(const LoadedConfig& loaded, server::ApiKeys keys,
                                 Console& console) {
  for (const std::string& file : loaded.config.values().server.api_keys) {
    RL_RETURN_IF_ERROR(keys.AddFile(file));
    WarnOfWriters(file, console);
  }
  for (const std::string& key : loaded.environment.api_keys) {
    RL_RETURN_IF_ERROR(keys.AddLines(key, "RULLAMA_API_KEY"));
  }
  return keys;
}

std::chrono::milliseconds Seconds(int64_t seconds) { return std::chrono::seconds(seconds); }

server::HttpServerOptions HttpOptionsOf(const ServerConfig& config, server::Api& api) {
  return {.host = config.host,
          .port = static_cast<uint16_t>(config.port),
          .limits = {.header_timeout = Seconds(config.header_timeout),
                     .body_timeout = Seconds(config.body_timeout),
                     .idle_timeout = Seconds(config.idle_timeout),
                     .write_timeout = Seconds(config.write_timeout),
                     .connections = static_cast<size_t>(config.max_connections),
                     .header_bytes = static_cast<uint32_t>(config.max_header_bytes),
                     .body_bytes = static_cast<uint64_t>(config.max_body_bytes),
                     .all_body_bytes = static_cast<uint64_t>(config.max_body_memory_mib) << 20},
          .allowed = {.hosts = config.allowed_hosts, .origins = config.allowed_origins},
          .wants_body = [&api](const server::HttpRequest& head) { return api.WantsBody(head); }};
}

// Null if slots are not saved.
std::shared_ptr<server::SlotFolder> SlotFolderOf(const ServerConfig& config) {
  if (!config.slot_save_path) return nullptr;
  return std::make_shared<server::SlotFolder>(*config.slot_save_path,
                                              static_cast<uint64_t>(config.slot_save_mib) << 20);
}

// Null if the configuration names none.
Result<std::shared_ptr<const server::WebFolder>> WebFolderOf(const ServerConfig& config) {
  if (!config.web_path) return nullptr;
  RL_ASSIGN_OR_RETURN(server::WebFolder folder, server::WebFolder::Read(*config.web_path));
  return std::make_shared<const server::WebFolder>(std::move(folder));
}

server::ApiOptions ApiOptionsOf(const ServerConfig& config, bool has_keys, Console& console) {
  const int64_t queue_of_one = has_keys ? (config.max_queue + 1) / 2 : config.max_queue;
  return {
      .version = RULLAMA_VERSION,
      .limits = {.max_queue = config.max_queue,
                 .max_queue_per_client = config.max_queue_per_key.value_or(queue_of_one),
                 .queue_timeout = Seconds(config.queue_timeout),
                 .request_timeout = Seconds(config.request_timeout)},
      .max_body_bytes = config.max_body_bytes,
      .max_loaded_models = config.max_loaded_models,
      .aliases = config.aliases,
      .page = config.page,
      .web = config.web_path.has_value(),
      .metrics = config.metrics,
      .embeddings = config.embeddings,
      .slots = config.slots_endpoint,
      .slot_folder = SlotFolderOf(config),
      .allow_pull = config.allow_pull,
      .pull = PullForClient,
      .log = [&console](std::string_view line) { console.WriteError(std::string(line) + "\n"); }};
}

// Error server.alias for an alias of a model that is not served.
Status CheckAliases(const std::vector<ModelAlias>& aliases,
                    const std::vector<server::ServedModel>& models) {
  for (const ModelAlias& alias : aliases) {
    if (std::ranges::find(models, alias.model, &server::ServedModel::id) != models.end()) continue;
    return MakeError(ErrorKind::kUsage, "server.alias",
                     "server.aliases has '{}' for model '{}', which is not served; expected one of "
                     "server.models",
                     ShownName(alias.name), ShownName(alias.model));
  }
  return OkStatus();
}

// Null if prompts are not kept on disk.
Result<std::shared_ptr<SnapshotStore>> OpenSnapshots(const ServerConfig& config, Console& console) {
  if (!config.prefix_cache_path) return nullptr;
  return SnapshotStore::Open(*config.prefix_cache_path,
                             static_cast<uint64_t>(config.prefix_cache_disk_mib) << 20,
                             [&console](std::string_view text) { console.Warn(text); });
}

// The name that clients use for the model of -hf: what was written, without a host and a quant.
std::string HubNameOf(const ServeFlags& flags) {
  const std::string text = flags.config.hub.value_or("");
  const std::string_view name = downloads::AfterHubHost(text).value_or(text);
  return std::string(name.substr(0, name.find(':')));
}

Status CheckAccess(const ServeFlags& flags, const ServerConfig& config, bool has_keys,
                   Console& console) {
  if (has_keys || IsLoopback(config.host)) return OkStatus();
  if (!flags.no_auth) {
    return MakeError(ErrorKind::kUsage, "server.no_key",
                     "server.host {} lets other machines in, and no key is asked for; name a file "
                     "of keys with --api-key-file, stay on 127.0.0.1, or give --insecure-no-auth",
                     config.host);
  }
  console.Warn("everybody who reaches this server may use it");
  return OkStatus();
}

// Keys are read again to revoke one as often as to add one, so an error says that none is revoked.
Error KeysStay(const Error& error) {
  return {
      error.kind, error.id,
      fmt::format("NO KEY WAS REVOKED, all earlier ones are still accepted: {}; then send SIGHUP "
                  "again, or end the server",
                  error.message)};
}

// Descriptors in addition to those of connections: the open ones, and some for files and MCP
// servers to come.
int64_t OwnDescriptors(size_t tool_servers) {
  constexpr int64_t kToCome = 32;
  constexpr int64_t kOfToolServer = 6;  // three pipes, while it is being started
  int64_t open = 0;
  std::error_code failure;
  for (auto entry = std::filesystem::directory_iterator("/proc/self/fd", failure);
       !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    ++open;
  }
  return open + kToCome + kOfToolServer * static_cast<int64_t>(tool_servers);
}

// As many of the connections that are asked for as the system lets the program have, whose limit is
// raised as far as it may be. Without that the system, not the server, would keep clients waiting.
size_t FitConnections(const server::HttpLimits& limits, size_t tool_servers, Console& console) {
  const int64_t others =
      OwnDescriptors(tool_servers) + static_cast<int64_t>(limits.refused_connections);
  const auto asked = static_cast<int64_t>(limits.connections);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return limits.connections;
  const auto needed = static_cast<rlim_t>(asked + others);
  if (files.rlim_cur >= needed) return limits.connections;
  rlimit raised = files;
  raised.rlim_cur = std::min(needed, files.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) files = raised;
  if (files.rlim_cur >= needed) return limits.connections;
  const int64_t fits = std::max<int64_t>(static_cast<int64_t>(files.rlim_cur) - others, 1);
  console.Warn(fmt::format(
      "the system allows {} open files, of which {} are left for connections: fewer than the {} of "
      "server.max_connections, of which as many are taken; raise the limit (ulimit -n {})",
      files.rlim_cur, fits, asked, needed));
  return static_cast<size_t>(fits);
}

// Null if prompts are not to be logged.
Result<std::unique_ptr<PromptLog>> OpenPromptLog(const ServeFlags& flags, Console& console) {
  if (flags.log_prompts.empty()) return nullptr;
  console.Warn(fmt::format("all prompts are written to '{}'", ShownName(flags.log_prompts)));
  return PromptLog::Open(flags.log_prompts);
}

// Nothing if the page offers no tools.
Result<ServedTools> ToolsOf(const ServeFlags& flags, const ServerConfig& config, Console& console) {
  if (flags.tools.empty()) return ServedTools{};
  if (!config.page) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "--mcp has tools for the chat page, which server.page switches off; leave one "
                     "of them out");
  }
  return ReadTools(flags.tools, console);
}

// " and 2 others"
std::string OthersText(size_t others) {
  return fmt::format(" and {} other{}", others, others == 1 ? "" : "s");
}

// The slots and what they take, as a line; nothing for a model without a cache.
std::string SlotText(const ModelInfo& info, const ContextConfig& asked) {
  if (info.slot_bytes == 0) return {};
  const auto bytes = static_cast<uint64_t>(info.slot_bytes);
  return fmt::format("{} slots{} of {} tokens: KV caches of {} in {}, {} each\n", info.slots,
                     asked.slots ? "" : " (auto)", info.capacity,
                     SizeText(bytes * static_cast<uint64_t>(info.slots)), info.cache_type,
                     SizeText(bytes));
}

// `leaves_threads`: as CommandContext has it.
Result<int> Serve(const ServeFlags& flags, TraceFile* trace, Console& console,
                  bool& leaves_threads) {
  BoundHeap();
  if (flags.config.quiet) console.set_verbosity(Verbosity::kWarnings);
  if (flags.config.verbose) console.set_verbosity(Verbosity::kNotes);
  if (flags.config.hub && !flags.models.empty()) {
    return MakeError(ErrorKind::kUsage, "usage.option",
                     "-m and -hf each name a model; leave one of them out");
  }
  RL_ASSIGN_OR_RETURN(LoadedConfig loaded, LoadConfig(flags.config));
  RL_RETURN_IF_ERROR(ApplyLists(flags, loaded.config));
  const ServerConfig& config = loaded.config.values().server;
  RL_ASSIGN_OR_RETURN(const auto snapshots, OpenSnapshots(config, console));
  RL_ASSIGN_OR_RETURN(
      server::ApiKeys keys,
      ReadKeys(loaded, snapshots ? server::ApiKeys(snapshots->secret()) : server::ApiKeys(),
               console));
  RL_RETURN_IF_ERROR(CheckAccess(flags, config, !keys.empty(), console));
  RL_ASSIGN_OR_RETURN(const auto web_folder, WebFolderOf(config));
  if (config.slot_save_path) RL_RETURN_IF_ERROR(server::CheckSlotFolder(*config.slot_save_path));
  RL_ASSIGN_OR_RETURN(const ServedTools tools, ToolsOf(flags, config, console));
  SetDrainSeconds(kSecondsToStop);
  RL_ASSIGN_OR_RETURN(const auto prompts, OpenPromptLog(flags, console));
  RL_ASSIGN_OR_RETURN(const std::vector<ModelToServe> models,
                      ModelsToServe(loaded, HubNameOf(flags)));
  const SharedByModels shared{std::make_shared<MediaBudget>(), snapshots, !flags.adapters_off};
  RL_ASSIGN_OR_RETURN(auto served, DescribeServed(flags.config, models, loaded.environment, shared,
                                                  trace, console));
  RL_RETURN_IF_ERROR(CheckAliases(config.aliases, served));
  RL_ASSIGN_OR_RETURN(auto engine, OpenServed(flags.config, models.front(), loaded.environment,
                                              shared, trace, console));
  const ModelInfo info = engine->info();
  std::atomic<const server::HttpServer*> listener = nullptr;
  server::ApiOptions api_options = ApiOptionsOf(config, !keys.empty(), console);
  api_options.web_folder = web_folder;
  api_options.snapshots = snapshots;
  api_options.tool_servers = tools.servers;
  api_options.tools = tools.servers != nullptr;
  api_options.connections = [&listener]() -> int64_t {
    const server::HttpServer* server = listener.load();
    return server == nullptr ? 0 : static_cast<int64_t>(server->connections());
  };
  if (prompts) {
    api_options.log_prompt = [&](std::string_view line) {
      if (const Status status = prompts->Write(line); !status) {
        console.Warn(status.error().ToString());
      }
    };
  }
  auto api = std::make_unique<server::Api>(std::move(served), std::exchange(engine, nullptr),
                                           std::move(api_options), keys);
  server::HttpServerOptions http_options = HttpOptionsOf(config, *api);
  http_options.limits.connections =
      FitConnections(http_options.limits, tools.servers ? tools.servers->size() : 0, console);
  RL_ASSIGN_OR_RETURN(
      auto http,
      server::HttpServer::Start(http_options, [&](server::Exchange& one) { api->Handle(one); }));
  listener = http.get();
  SetDrainSeconds(static_cast<unsigned>(config.drain) + 5);
  console.WriteError(SlotText(info, models.front().config.values().context));
  console.WriteError(fmt::format("listening on http://{}:{} ({}{} on {}, {} slots of {} tokens)\n",
                                 config.host, http->port(), models.front().id,
                                 models.size() == 1 ? "" : OthersText(models.size() - 1),
                                 info.backend, info.slots, info.capacity));
  if (tools.servers) {
    tools.servers->Start();
    console.WriteError(fmt::format("chat with tools at {}\n",
                                   PageAddress(config.host, http->port(), tools.token)));
  }
  const auto reload = [&] {
    auto changed = ReadKeys(loaded, keys.WithoutKeys(), console);
    const Status status = changed ? CheckAccess(flags, config, !changed->empty(), console)
                                  : Status(tl::unexpected(changed.error()));
    if (!status) return console.Fail(KeysStay(status.error()));
    api->ReplaceKeys(*std::move(changed));
    console.WriteError("read the keys again\n");
  };
  const Status ended = WaitForEnd(reload, [&api] { return api->failure(); });
  if (snapshots) snapshots->FinishBy(std::chrono::steady_clock::now() + Seconds(config.drain));
  api->Drain();
  http->StopListening();
  if (!http->WaitUntilIdle(Seconds(config.drain))) api->CancelAll();
  if (tools.servers) tools.servers->Stop();
  http->WaitUntilIdle(std::chrono::seconds(1));
  listener = nullptr;
  http.reset();
  if (tools.servers) tools.servers->End();
  // The models write their snapshots while the limit of time and a second signal still end them.
  api->Finish();
  if (snapshots) snapshots->Flush();
  leaves_threads = !CloseWithin(kTimeToClose, std::move(api));
  ForgetSignals();
  RL_RETURN_IF_ERROR(ended);
  return 0;
}

Result<int> ServeAndTrace(const ServeFlags& flags, CommandContext& context) {
  RL_ASSIGN_OR_RETURN(const auto trace, TraceFile::Create(flags.trace));
  return TraceFile::Finish(trace,
                           Serve(flags, trace.get(), context.console, context.leaves_threads));
}

}  // namespace

void AddServeCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App* command =
      app.add_subcommand("serve", "Answer programs over HTTP, in the form of the OpenAI API");
  AddModelOptions(*command, flags->config, &flags->models);
  AddTowerOption(*command, flags->config);
  AddImageTokensOption(*command, flags->config);
  AddSamplerOptions(*command, flags->config);
  AddDraftOptions(*command, flags->config);
  AddSetting(*command, flags->config, "--slots,--parallel", "context.slots",
             "Requests that run at the same time [default auto: at least 4, by the device]");
  AddWarmUpOption(*command, flags->config, "dispatch");
  AddSetting(*command, flags->config, "--max-gap-ms", "server.max_gap_ms",
             "Milliseconds between two tokens of an answer while other prompts are read")
      ->option_text("N");
  AddSetting(*command, flags->config, "--max-loaded-models", "server.max_loaded_models",
             "Models that are loaded at the same time")
      ->option_text("N");
  AddSetting(*command, flags->config, "--keep-alive", "server.keep_alive",
             "How long a model stays loaded after its last answer")
      ->option_text("TIME");
  AddSetting(*command, flags->config, "--host", "server.host", "Address to listen on")
      ->option_text("ADDRESS");
  AddSetting(*command, flags->config, "--port", "server.port", "Port to listen on; 0: any free one")
      ->option_text("N");
  AddSetting(*command, flags->config, "--prefix-cache-path", "server.prefix_cache_path",
             "Folder for snapshots of prompts that outlive the server")
      ->option_text("DIR");
  AddSetting(*command, flags->config, "--prefix-cache-disk-mib", "server.prefix_cache_disk_mib",
             "Size of that folder [default 8192]")
      ->option_text("N");
  AddSetting(*command, flags->config, "--slot-save-path", "server.slot_save_path",
             "Folder for slots that clients save")
      ->option_text("DIR");
  AddSetting(*command, flags->config, "--web-path", "server.web_path",
             "Folder of the page that runs models in the browser itself, offered at /web")
      ->option_text("DIR");
  const struct {
    const char* name;
    std::vector<std::string>& items;
    const char* text;
    const char* help;
  } lists[] = {
      {"--api-key-file", flags->api_keys, "FILE",
       "File of keys that clients may use, one a line; may be repeated (also RULLAMA_API_KEY)"},
      {"--allowed-host", flags->allowed_hosts, "NAME",
       "Name of this server that clients may use, besides addresses and localhost"},
      {"--allowed-origin", flags->allowed_origins, "URL",
       "Pages of another server that may use this one through a browser"},
  };
  for (const auto& list : lists) {
    command->add_option(list.name, list.items, list.help)
        ->option_text(list.text)
        ->allow_extra_args(false);
  }
  command
      ->add_option("--log-prompts", flags->log_prompts,
                   "File to append the bodies of all requests to; only its owner may read it")
      ->option_text("FILE");
  command
      ->add_option("--mcp", flags->tools,
                   "File of MCP servers (mcpServers) whose tools the chat page offers; none runs "
                   "before its user has agreed")
      ->option_text("FILE");
  AddTraceOptions(*command, flags->trace);
  command
      ->add_flag("--lora-init-without-apply", flags->adapters_off,
                 "Let requests have the adapters only if they ask for them")
      ->group("Model");
  command->add_flag("--insecure-no-auth", flags->no_auth, "Let other machines in without a key");
  command->footer(R"(Examples:
  rullama serve -m gemma4:e2b
  rullama serve -hf ggml-org/gemma-3-270m-it-GGUF
  rullama serve -m model.gguf --backend vulkan --slots 16 --port 8080
  rullama serve -m gemma4:e2b -m gemma4:e4b --max-loaded-models 2
  curl http://127.0.0.1:11435/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hi"}]}'

docs/server.md lists the endpoints.)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return ServeAndTrace(*flags, context); };
  });
}

}  // namespace rullama::cli
