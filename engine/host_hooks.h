// The calls by which a program learns what happens while a model is loaded and run. All members may
// be empty.
#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace rullama {

// Notes about choices that were made, and warnings. Thread safety: called by one thread at a time.
class Notices {
 public:
  Notices() = default;
  Notices(const Notices&) = default;
  Notices& operator=(const Notices&) = default;
  virtual ~Notices() = default;
  virtual void Note(std::string_view text) = 0;
  virtual void Warn(std::string_view text) = 0;
};

class EngineObserver;
class MediaBudget;
class SnapshotStore;

struct HostHooks {
  std::shared_ptr<spdlog::logger> logger;  // of plugins; null: spdlog's default logger
  // While it is set, work in plugins is cancelled and requests end, as by Generation::Cancel().
  std::shared_ptr<const std::atomic<bool>> cancelled;
  // Pages of the mapping of a model file are going to be read, or it is going to be unmapped.
  // Several models may be open. Called by any thread.
  std::function<void(std::span<const std::byte> mapping, bool mapped)> on_mapping = {};
  // The device that is going to be opened.
  std::function<void(std::string_view backend, std::string_view device, std::string_view driver)>
      on_device = {};
  // A plugin that is not part of this installation, by its file, is going to be loaded; called
  // again with the name of its backend when it is.
  std::function<void(std::string_view file, std::string_view backend)> on_foreign_plugin = {};
  // A device was opened, so its drivers have been loaded and may have installed signal handlers.
  std::function<void()> on_drivers_loaded = {};
  // Of the media of all engines of the process together; null: an engine has one of its own.
  std::shared_ptr<MediaBudget> media_budget = {};
  // Snapshots of the prompts of all engines on disk; null: there are none.
  std::shared_ptr<SnapshotStore> snapshots = {};
  // Sees the steps and requests of an engine, or the steps of a training. Borrowed; outlives them.
  EngineObserver* observer = nullptr;
};

}  // namespace rullama
