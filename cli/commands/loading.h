// Models, sessions and devices as the command line asks for them: the configuration joined from
// flags, environment and file, and the program's hooks (signals, reports of crashes, log lines).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/options.h"
#include "cli/reports/trace.h"
#include "cli/terminal/console.h"
#include "engine/api/engine.h"
#include "engine/model_session.h"

namespace rullama::cli {

// Threads of the cpu backend, which takes the physical cores unless told otherwise; "-" for others
// without an option of that name.
std::string ThreadsOf(const ModelSession& session);

// The hooks of this process: Ctrl-C cancels work in plugins, log lines go to stderr at the level of
// RULLAMA_LOG (default: warnings), the mapping of the model is watched for SIGBUS, and crashes in
// drivers are reported with the device in use.
HostHooks ProcessHooks(const EnvironmentOverrides& environment);

// OpenModelFile of the engine, with a mapping that is watched.
Result<ModelFile> OpenModelFile(const std::optional<std::string>& path);

// A model, and the environment that its configuration was joined with.
struct ConfiguredModel {
  LoadedModel model;
  EnvironmentOverrides environment;
};
// Takes -q and -v into account. Errors: config.*, and those of LoadModel.
Result<ConfiguredModel> LoadModel(const ConfigFlags& flags, Console& console);

// Errors: those of LoadModel and ModelSession::Open.
Result<std::unique_ptr<ModelSession>> OpenModelSession(const ConfigFlags& flags,
                                                       ModelSessionOptions options,
                                                       Console& console);

// An engine for one request at a time; with -v it is described. `trace`, if any, gets a session; it
// outlives the engine. Errors: those of LoadModel and EngineAccess::Open.
Result<std::shared_ptr<Engine>> OpenEngine(const ConfigFlags& flags, Console& console,
                                           TraceFile* trace = nullptr);

// The functions of the engine with the hooks of this process.
std::unique_ptr<Registry> MakeRegistry(const Config& config,
                                       const EnvironmentOverrides& environment,
                                       const std::vector<std::string>& plugin_flags);
Result<BackendDevices> OpenDevices(Registry& registry, const Config& config, Console& console);

// Prints the notes of -v: device, memory that will be taken, sampling chain, seed.
void DescribeSession(const ModelSession& session, Console& console);

}  // namespace rullama::cli
