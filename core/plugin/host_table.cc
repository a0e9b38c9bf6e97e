#include "core/plugin/host_table.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/printable.h"
#include "core/plugin/call_guard.h"

namespace rullama {
namespace {

constexpr size_t kMaxLogBytes = 8192;

struct Context {
  rl_host_v1 table{};
  std::shared_ptr<PluginHost> host;
  std::string component;
};

Context& Of(void* context) { return *static_cast<Context*>(context); }

spdlog::level::level_enum LevelOf(int32_t level) {
  switch (level) {
    case RL_LOG_DEBUG:
      return spdlog::level::debug;
    case RL_LOG_INFO:
      return spdlog::level::info;
    case RL_LOG_WARNING:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;  // an unknown level is better seen than lost
  }
}

// The callbacks are noexcept and swallow what fails: the caller is foreign code, possibly C.
void Log(void* context, int32_t level, rl_str message) noexcept {
  try {
    const Context& self = Of(context);
    self.host->logger().log(LevelOf(level), "[{}] {}", self.component,
                            Printable(message, kMaxLogBytes));
  } catch (...) {
    // A lost log line must not end the run.
  }
}

int32_t Cancelled(void* context) noexcept {
  NotePluginQuestion();
  return Of(context).host->cancelled() ? 1 : 0;
}

std::optional<std::string_view> KeyOf(rl_str key) {
  if (key.data == nullptr || key.size == 0 || key.size > kMaxKeyBytes) return std::nullopt;
  return std::string_view(key.data, static_cast<size_t>(key.size));
}

uint64_t BlobGet(void* context, rl_str key, void* data, uint64_t capacity) noexcept {
  try {
    const auto name = KeyOf(key);
    if (!name) return 0;
    const auto blob = Of(context).host->blobs().Get(*name);
    if (!blob) return 0;
    const auto copied = static_cast<size_t>(std::min<uint64_t>(capacity, blob->size()));
    if (data != nullptr && copied > 0) std::memcpy(data, blob->data(), copied);
    return blob->size();
  } catch (...) {
    return 0;  // a miss
  }
}

int32_t BlobPut(void* context, rl_str key, const void* data, uint64_t size) noexcept {
  try {
    const auto name = KeyOf(key);
    if (!name || (data == nullptr && size > 0)) return RL_INVALID_ARGUMENT;
    const std::span bytes(static_cast<const std::byte*>(data), static_cast<size_t>(size));
    return Of(context).host->blobs().Put(*name, bytes) ? RL_OK : RL_UNAVAILABLE;
  } catch (...) {
    return RL_OUT_OF_MEMORY;
  }
}

HostOptions WithLogger(HostOptions options) {
  if (options.logger == nullptr) options.logger = spdlog::default_logger();
  return options;
}

// Contexts are never freed (see the header). The list keeps them reachable, so that leak checkers
// see intent rather than an accident.
void KeepForEver(std::unique_ptr<Context> context) {
  static std::mutex mutex;
  static auto* const kKept = new std::vector<std::unique_ptr<Context>>;
  const std::lock_guard lock(mutex);
  kKept->push_back(std::move(context));
}

}  // namespace

PluginHost::PluginHost(HostOptions options)
    : options_(WithLogger(std::move(options))),
      blobs_(options_.cache_directory, [logger = options_.logger](const std::string& reason) {
        logger->info("{}", reason);
      }) {}

bool PluginHost::cancelled() const {
  return options_.cancelled != nullptr && options_.cancelled->load(std::memory_order_relaxed);
}

const rl_host_v1* PluginHost::MakeTable(std::shared_ptr<PluginHost> host, std::string component) {
  auto context = std::make_unique<Context>();
  context->host = std::move(host);
  context->component = std::move(component);
  rl_host_v1& table = context->table;
  table.struct_size = sizeof(table);
  table.abi_major = RL_ABI_MAJOR;
  table.abi_minor = RL_ABI_MINOR;
  table.context = context.get();
  table.log = Log;
  table.cancelled = Cancelled;
  table.blob_get = BlobGet;
  table.blob_put = BlobPut;
  const rl_host_v1* result = &table;
  KeepForEver(std::move(context));
  return result;
}

std::string Printable(rl_str text, size_t limit) {
  if (text.data == nullptr) return {};
  const std::string_view shown(text.data,
                               static_cast<size_t>(std::min<uint64_t>(text.size, limit)));
  return Printable(shown, shown.size());
}

}  // namespace rullama
