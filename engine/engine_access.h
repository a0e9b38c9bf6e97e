// An Engine as the programs of this project open it: from a configuration that they have joined
// themselves, with the hooks of their process, and with access to its device and model.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "engine/api/engine.h"
#include "engine/host_hooks.h"
#include "engine/loading/loaded_model.h"
#include "engine/model_session.h"

namespace rullama {

struct EngineSetup {
  std::optional<int64_t> slots = {};  // none: context.slots, else one
  bool auto_slots = false;            // where neither tells: as auto_slots.h chooses for the device
  std::vector<std::string> plugin_paths = {};  // searched before those of the configuration
  HostHooks hooks = {};
  // Requests that choose no adapters have them, with the factors of the configuration.
  bool apply_adapters = true;
  WarmUp warm_up = WarmUp::kOff;  // unless the configuration says otherwise (backend.warm_up)
  // Ends the warm-up with run.cancelled once it is set; null: HostHooks::cancelled does.
  std::shared_ptr<const std::atomic<bool>> stop_warm_up = {};
  // Of benchmarks: a token of a draft counts as right with this probability, whatever the model
  // draws. The text makes no sense then. It may change between requests. Null: drafts are checked.
  std::shared_ptr<const std::atomic<double>> draft_acceptance = {};
};

struct RULLAMA_LOCAL EngineAccess {
  // Blocks until requests can run. Errors: those of ModelSession::Open.
  static Result<std::shared_ptr<Engine>> Open(LoadedModel model, const EngineSetup& setup,
                                              Notices& notices);
  // The facts of a model that its file tells: all of ModelInfo but those that need a device or a
  // setting.
  static ModelInfo FileInfo(const ModelFile& file);
  // The session of the engine, for what does not change while requests run: model, configuration,
  // devices and settings; while none runs also the placement.
  static const ModelSession& SessionOf(const Engine& engine);
  // Ends the work of an engine that nobody uses any more: snapshots that later requests would find
  // are handed over. Only its destructor may follow, which closes devices.
  static void Finish(Engine& engine);
};

}  // namespace rullama
