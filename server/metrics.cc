#include "server/metrics.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <fstream>

namespace rullama::server {
namespace {

struct CounterRow {
  std::string_view name;
  std::string_view help;
  std::vector<std::string> labels;  // that are there from the start
};

const std::array<CounterRow, static_cast<size_t>(Counter::kCount)>& CounterRows() {
  static const std::array<CounterRow, static_cast<size_t>(Counter::kCount)> kRows = {{
      {"requests_total", "Requests that were answered.", {}},
      {"prompt_tokens_total", "Tokens of prompts that were read.", {""}},
      {"prompt_tokens_cached_total", "Tokens of prompts that were found in a cache.", {""}},
      {"generated_tokens_total", "Tokens that were drawn.", {""}},
      {"cancelled_total",
       "Answers that were ended early.",
       {R"(reason="left")", R"(reason="deadline")", R"(reason="drain")", R"(reason="slow")"}},
      {"tool_parse_failures_total", "Calls of tools that could not be understood.", {""}},
      {"model_loads_total", "Models that were loaded.", {R"(result="ok")", R"(result="error")"}},
      {"auth_failures_total", "Requests with a wrong key or none.", {""}},
      {"device_lost_total", "Losses of a device.", {""}},
  }};
  return kRows;
}

struct NamedHelp {
  std::string_view name;
  std::string_view help;
};
constexpr std::array<NamedHelp, static_cast<size_t>(Distribution::kCount)> kDistributions = {{
    {"queue_seconds", "From a request's arrival until it has a slot."},
    {"time_to_first_token_seconds", "From a request's arrival until its first token."},
    {"inter_token_seconds", "Between two tokens of an answer."},
    {"request_seconds", "From a request's arrival until its answer is over."},
}};

struct GaugeRow {
  NamedHelp text;
  double (*value)(const Gauges&);
};
constexpr std::array<GaugeRow, 13> kGauges = {{
    {{"slots", "Requests that can run at the same time."},
     [](const Gauges& g) { return static_cast<double>(g.engine.slots); }},
    {{"slots_busy", "Slots that have a request."},
     [](const Gauges& g) { return static_cast<double>(g.engine.slots_busy); }},
    {{"slots_paused", "Slots that wait for a client that reads slowly."},
     [](const Gauges& g) { return static_cast<double>(g.engine.slots_paused); }},
    {{"queue_length", "Requests that wait for a slot."},
     [](const Gauges& g) { return static_cast<double>(g.engine.waiting); }},
    {{"connections", "Open connections."},
     [](const Gauges& g) { return static_cast<double>(g.connections); }},
    {{"kv_tokens", "Tokens that running requests hold in the caches."},
     [](const Gauges& g) { return static_cast<double>(g.engine.kv_tokens); }},
    {{"kv_capacity_tokens", "Tokens that all slots can hold."},
     [](const Gauges& g) { return static_cast<double>(g.kv_capacity); }},
    {{"prefix_cache_bytes", "Memory of the snapshots of prompts."},
     [](const Gauges& g) { return static_cast<double>(g.engine.prefix_bytes); }},
    {{"prefix_cache_entries", "Snapshots of prompts."},
     [](const Gauges& g) { return static_cast<double>(g.engine.prefix_entries); }},
    {{"media_cache_bytes", "Memory of the soft tokens of recent pictures and sounds."},
     [](const Gauges& g) { return static_cast<double>(g.engine.media_bytes); }},
    {{"media_cache_entries", "Pictures and sounds whose soft tokens are kept."},
     [](const Gauges& g) { return static_cast<double>(g.engine.media_entries); }},
    {{"device_memory_bytes", "Memory of the device that the model takes."},
     [](const Gauges& g) { return static_cast<double>(g.device_memory_bytes); }},
    {{"models_loaded", "Models in memory."},
     [](const Gauges& g) { return static_cast<double>(g.models_loaded); }},
}};

void AddHead(std::string& text, std::string_view prefix, const NamedHelp& row,
             std::string_view type) {
  text += fmt::format("# HELP {0}{1} {2}\n# TYPE {0}{1} {3}\n", prefix, row.name, row.help, type);
}

void AddBuckets(std::string& text, std::string_view name, const std::string& label,
                const Histogram& histogram) {
  const std::string before = label.empty() ? "" : label + ",";
  uint64_t count = 0;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    count += histogram.counts[i];
    const std::string bound =
        i < Histogram::kBounds.size() ? fmt::format("{}", Histogram::kBounds[i]) : "+Inf";
    text += fmt::format("rullama_{}_bucket{{{}le=\"{}\"}} {}\n", name, before, bound, count);
  }
  const std::string labels = label.empty() ? "" : "{" + label + "}";
  text += fmt::format("rullama_{0}_sum{1} {2}\nrullama_{0}_count{1} {3}\n", name, labels,
                      histogram.sum, count);
}

void AddHistograms(std::string& text, const Gauges& gauges) {
  const EngineStats& stats = gauges.engine;
  AddHead(text, "rullama_", {"mask_seconds", "To make the mask of allowed tokens of one step."},
          "histogram");
  AddBuckets(text, "mask_seconds", "", stats.mask_seconds);
  AddHead(text, "rullama_", {"schema_compile_seconds", "To compile a schema."}, "histogram");
  AddBuckets(text, "schema_compile_seconds", "", stats.schema_seconds);
  AddHead(text, "rullama_", {"snapshot_seconds", "To copy what a slot holds."}, "histogram");
  AddBuckets(text, "snapshot_seconds", R"(op="save")", stats.snapshot_save);
  AddBuckets(text, "snapshot_seconds", R"(op="restore")", stats.snapshot_restore);
  if (gauges.disk) {
    AddBuckets(text, "snapshot_seconds", R"(op="disk_read")", gauges.disk->read);
    AddBuckets(text, "snapshot_seconds", R"(op="disk_write")", gauges.disk->write);
  }
  AddHead(text, "rullama_", {"media_encode_seconds", "To encode a picture or a sound."},
          "histogram");
  AddBuckets(text, "media_encode_seconds", "", stats.encode_seconds);
}

// The prefix cache on disk.
void AddDisk(std::string& text, const SnapshotStoreStats& disk) {
  const struct {
    NamedHelp row;
    std::string_view type;
    uint64_t value;
  } rows[] = {
      {{"bytes", "Bytes of the files of prompts."}, "gauge", disk.bytes},
      {{"files", "Files of prompts."}, "gauge", static_cast<uint64_t>(disk.files)},
      {{"hits_total", "Prompts of which a part was read from a file."}, "counter", disk.hits},
      {{"misses_total", "Prompts of which no file had a part."}, "counter", disk.misses},
      {{"evictions_total", "Files that gave way to others."}, "counter", disk.evictions},
      {{"errors_total", "Files that were damaged, or could not be written."},
       "counter",
       disk.errors},
  };
  constexpr std::string_view kPrefix = "rullama_prefix_cache_disk_";
  for (const auto& one : rows) {
    AddHead(text, kPrefix, one.row, one.type);
    text += fmt::format("{}{} {}\n", kPrefix, one.row.name, one.value);
  }
}

void AddSteps(std::string& text, const EngineStats& stats) {
  const struct {
    std::string label;
    const StepStats& steps;
  } kinds[] = {{R"(kind="decode")", stats.decode},
               {R"(kind="prompt")", stats.prompt},
               {R"(kind="denoise")", stats.denoise}};
  AddHead(text, "rullama_", {"step_seconds", "Time of a step of the model."}, "histogram");
  for (const auto& kind : kinds) AddBuckets(text, "step_seconds", kind.label, kind.steps.seconds);
  AddHead(text, "rullama_", {"step_rows", "Rows of a step of the model."}, "histogram");
  for (const auto& kind : kinds) AddBuckets(text, "step_rows", kind.label, kind.steps.rows);
}

// A drafter that does not fit its model shows in the first places.
void AddDraftPlaces(std::string& text, const EngineStats& stats) {
  const struct {
    NamedHelp row;
    const std::array<uint64_t, kCountedDraftPlaces>& counts;
  } rows[] = {
      {{"drafted_tokens_by_place_total", "Guessed tokens by their place in a guess."},
       stats.drafted_at},
      {{"draft_accepted_tokens_by_place_total", "Those that the model drew."}, stats.accepted_at}};
  for (const auto& one : rows) {
    AddHead(text, "rullama_", one.row, "counter");
    for (size_t i = 0; i < one.counts.size(); ++i) {
      text += fmt::format("rullama_{}{{place=\"{}\"}} {}\n", one.row.name, i + 1, one.counts[i]);
    }
  }
}

double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

double OpenDescriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  double count = -3;  // ".", ".." and the folder itself
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

const double kStartTime = static_cast<double>(std::time(nullptr));

void AddProcess(std::string& text) {
  const struct {
    NamedHelp row;
    double value;
  } rows[] = {
      {{"resident_memory_bytes", "Resident memory."}, ResidentBytes()},
      {{"open_fds", "Open file descriptors."}, OpenDescriptors()},
      {{"start_time_seconds", "When the process started, since 1970."}, kStartTime},
  };
  for (const auto& one : rows) {
    AddHead(text, "process_", one.row, "gauge");
    text += fmt::format("process_{} {:.0f}\n", one.row.name, one.value);
  }
}

}  // namespace

Metrics::Metrics() {
  for (size_t i = 0; i < counters_.size(); ++i) {
    for (const std::string& labels : CounterRows()[i].labels) counters_[i][labels] = 0;
  }
}

void Metrics::Add(Counter counter, double count, const std::string& labels) {
  const std::lock_guard lock(mutex_);
  counters_[static_cast<size_t>(counter)][labels] += count;
}

void Metrics::Observe(Distribution distribution, double seconds) {
  const std::lock_guard lock(mutex_);
  distributions_[static_cast<size_t>(distribution)].Observe(seconds);
}

std::string Metrics::Text(const Gauges& gauges) const {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < counters_.size(); ++i) {
      const CounterRow& row = CounterRows()[i];
      AddHead(text, "rullama_", {row.name, row.help}, "counter");
      for (const auto& [labels, value] : counters_[i]) {
        text += fmt::format("rullama_{}{} {}\n", row.name, labels.empty() ? "" : "{" + labels + "}",
                            value);
      }
    }
    for (size_t i = 0; i < distributions_.size(); ++i) {
      AddHead(text, "rullama_", kDistributions[i], "histogram");
      AddBuckets(text, kDistributions[i].name, "", distributions_[i]);
    }
  }
  const struct {
    NamedHelp row;
    uint64_t value;
  } counts[] = {
      {{"prefix_cache_hits_total", "Prompts of which a part was found."},
       gauges.engine.prefix_hits},
      {{"prefix_cache_misses_total", "Prompts of which nothing was found."},
       gauges.engine.prefix_misses},
      {{"prefix_cache_evictions_total", "Snapshots of prompts that were given up."},
       gauges.engine.prefix_evictions},
      {{"media_cache_hits_total", "Pictures and sounds whose soft tokens were found."},
       gauges.engine.media_hits},
      {{"media_cache_misses_total", "Pictures and sounds that were encoded."},
       gauges.engine.media_misses},
      {{"drafted_tokens_total", "Tokens that were guessed in advance."}, gauges.engine.drafted},
      {{"draft_accepted_tokens_total", "Guessed tokens that the model drew."},
       gauges.engine.drafts_accepted},
      {{"constraint_failures_total", "Answers under a schema that met a dead end."},
       gauges.engine.constraint_failures},
      {{"prefix_cache_oversized_total", "Snapshots that were larger than the cache."},
       gauges.engine.prefix_oversized}};
  for (const auto& one : counts) {
    AddHead(text, "rullama_", one.row, "counter");
    text += fmt::format("rullama_{} {}\n", one.row.name, one.value);
  }
  AddDraftPlaces(text, gauges.engine);
  AddHistograms(text, gauges);
  if (gauges.disk) AddDisk(text, *gauges.disk);
  AddSteps(text, gauges.engine);
  for (const GaugeRow& row : kGauges) {
    AddHead(text, "rullama_", row.text, "gauge");
    text += fmt::format("rullama_{} {}\n", row.text.name, row.value(gauges));
  }
  AddHead(text, "rullama_", {"build_info", "The program."}, "gauge");
  text += fmt::format("rullama_build_info{{version=\"{}\",backend=\"{}\"}} 1\n", gauges.version,
                      gauges.backend);
  AddProcess(text);
  return text;
}

}  // namespace rullama::server
