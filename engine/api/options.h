// The options that an Engine is opened with. Value types.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rullama {

enum class LogLevel { kError, kWarning, kNote };

// One value of the configuration, by its name in docs/configuration.md: {"context.slots", "4"}.
struct Setting {
  std::string key;
  std::string value;  // as in YAML, without quotes; a list is [a, b], a block {a: 1, b: 2}
};

// Settings outrank the configuration file. Without any of them the engine has the defaults of
// docs/configuration.md and what the model file recommends.
struct EngineOptions {
  std::string model = {};        // GGUF file, or an Ollama name: "gemma4:e2b"; as "model.path"
  std::string backend = {};      // "cpu", "vulkan", ..., "auto"; as "backend.name"
  std::string config_file = {};  // YAML
  std::vector<Setting> settings = {};
  // Low-rank adapters (LoRA), which add up: each a file or folder, or "FILE:SCALE"; as
  // "model.adapters". Empty: those of the configuration file.
  std::vector<std::string> adapters = {};
  // Each request may choose among them (Request::adapters). On GPUs that costs each step more time
  // than adapters that all requests have.
  bool choose_adapters = false;
  // Folders or files of plugins, searched before those of the configuration.
  std::vector<std::string> plugin_paths = {};
  // Warnings and notes, one line each. Called by the thread that opens the engine and by the
  // engine's own thread, never by two at once. May be empty.
  std::function<void(LogLevel level, std::string_view text)> log = {};
};

}  // namespace rullama
