// The metrics of /metrics, in the text form 0.0.4 of Prometheus. No text of requests, no path, no
// name chosen by a client is ever part of it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/stats.h"
#include "engine/scheduling/snapshot_store.h"

namespace rullama::server {

enum class Counter : uint8_t {
  kRequests,      // {endpoint, code}
  kPromptTokens,  // read
  kCachedTokens,  // of prompts, not read again
  kDrawnTokens,
  kCancelled,  // {reason}
  kToolParseFailures,
  kModelLoads,  // {result}
  kAuthFailures,
  kDeviceLosses,
  kCount,
};

enum class Distribution : uint8_t {
  kQueueSeconds,
  kFirstTokenSeconds,
  kInterTokenSeconds,
  kRequestSeconds,
  kCount,
};

// Gauges: values at the moment of the question.
struct Gauges {
  EngineStats engine = {};
  int64_t kv_capacity = 0;  // tokens of all slots
  int64_t connections = 0;
  int64_t models_loaded = 0;
  int64_t device_memory_bytes = 0;
  std::string version;
  std::string backend;
  std::optional<SnapshotStoreStats> disk = {};  // of prompts; none: there are none on disk
};

// Thread safety: all member functions from any thread.
class Metrics {
 public:
  Metrics();

  // `labels` as in the text: `code="200"`; those of kCancelled and kModelLoads are listed in
  // metrics.cc.
  void Add(Counter counter, double count = 1, const std::string& labels = "");
  void Observe(Distribution distribution, double seconds);

  [[nodiscard]] std::string Text(const Gauges& gauges) const;

 private:
  mutable std::mutex mutex_;
  std::array<std::map<std::string, double>, static_cast<size_t>(Counter::kCount)> counters_;
  std::array<Histogram, static_cast<size_t>(Distribution::kCount)> distributions_;
};

}  // namespace rullama::server
