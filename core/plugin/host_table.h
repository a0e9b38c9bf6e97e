// The host's side of the plugin boundary: the functions that plugins may call (rl_host_v1).
//
// Ownership: main makes one PluginHost and shares it with every plugin. The tables it hands out
// live until the process ends, as the contract promises: libraries are never unloaded, so their
// threads and statics may hold a table for as long. Thread safety: all functions may be called from
// any thread.
#pragma once

#include <rullama/abi/rullama_abi.h>
#include <spdlog/logger.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/plugin/blob_cache.h"

namespace rullama {

// The time a plugin may take to list or open its devices before a message names it, and that a call
// of a device may take, which may be a long step of a slow machine.
inline constexpr std::chrono::milliseconds kPluginPatience = std::chrono::seconds(10);
inline constexpr std::chrono::milliseconds kDevicePatience = std::chrono::seconds(30);

struct HostOptions {
  std::shared_ptr<spdlog::logger> logger;              // null: spdlog's default logger
  std::shared_ptr<const std::atomic<bool>> cancelled;  // null: nobody ever cancels
  std::filesystem::path cache_directory = BlobCache::DefaultDirectory();
  // A plugin file that the user named is going to be loaded; called again, with the name of its
  // backend, when it is. May be empty.
  std::function<void(std::string_view file, std::string_view backend)> on_foreign_plugin = {};
  std::chrono::milliseconds patience = kPluginPatience;
  std::chrono::milliseconds device_patience = kDevicePatience;
};

class PluginHost {
 public:
  explicit PluginHost(HostOptions options);
  PluginHost(const PluginHost&) = delete;
  PluginHost& operator=(const PluginHost&) = delete;

  // A table for one plugin, whose log lines begin with "[component]". Valid for the life of the
  // process; `host` is kept alive with it.
  static const rl_host_v1* MakeTable(std::shared_ptr<PluginHost> host, std::string component);

  [[nodiscard]] spdlog::logger& logger() const { return *options_.logger; }
  [[nodiscard]] std::chrono::milliseconds patience() const { return options_.patience; }
  [[nodiscard]] std::chrono::milliseconds device_patience() const {
    return options_.device_patience;
  }
  [[nodiscard]] bool cancelled() const;
  void NoteForeignPlugin(std::string_view file, std::string_view backend) const {
    if (options_.on_foreign_plugin) options_.on_foreign_plugin(file, backend);
  }
  [[nodiscard]] BlobCache& blobs() { return blobs_; }

 private:
  HostOptions options_;
  BlobCache blobs_;
};

// Text from a plugin, made safe to print: at most `limit` bytes, no control characters, valid UTF-8
// (core/base/printable.h). A null pointer gives an empty text.
std::string Printable(rl_str text, size_t limit);

}  // namespace rullama
