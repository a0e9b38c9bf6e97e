// Engines over snapshots of prompts on disk.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "engine/engine_access.h"
#include "engine/loading/engine_config.h"
#include "engine/scheduling/snapshot_store.h"
#include "models/registry.h"
#include "tests/engine/no_notices_test_util.h"
#include "tests/fakes/adapter_folder.h"

namespace rullama {
namespace {

// An engine that drafts or does not, over snapshots on disk.
std::shared_ptr<Engine> OpenOver(std::shared_ptr<SnapshotStore> snapshots, const char* lookup,
                                 const std::vector<std::string>& adapters = {}) {
  const EngineOptions options{.model = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf",
                              .backend = "cpu",
                              .settings = {{"context.prefill_chunk", "16"},
                                           {"context.capacity", "512"},
                                           {"drafts.lookup", lookup}},
                              .adapters = adapters,
                              .plugin_paths = {RULLAMA_BINARY_DIR "/lib/rullama"}};
  NoNotices notices;
  LoadedModel model = Must(LoadModel(Must(ConfigOf(options)), {}, notices, AdapterUse::kByRow));
  EngineSetup setup{.plugin_paths = options.plugin_paths};
  setup.hooks.snapshots = std::move(snapshots);
  return Must(EngineAccess::Open(std::move(model), setup, notices));
}

int64_t CachedTokens(Engine& engine, const Request& request) {
  auto generation = Must(engine.Submit(request));
  return Must(generation.Wait()).cached_tokens;
}

// Rings of an engine that drafts are larger. A file with others must not stay in the way.
TEST(DiskPromptsTest, APromptThatDoesNotFitIsReplaced) {
  const std::filesystem::path folder = ::testing::TempDir() + "unfit_" + std::to_string(::getpid());
  const auto store = Must(SnapshotStore::Open(folder, uint64_t{64} << 20U, {}));
  Request request{.max_tokens = 1};
  for (int i = 0; i < 200; ++i) request.ids.push_back(300 + i * i % 1700);  // beyond the window
  EXPECT_EQ(CachedTokens(*OpenOver(store, "false"), request), 0);
  EXPECT_EQ(CachedTokens(*OpenOver(store, "false"), request), 192);
  // Each request removes one file that does not fit.
  int64_t cached = CachedTokens(*OpenOver(store, "true"), request);
  EXPECT_LT(cached, 192) << "the rings are equal";
  for (int i = 0; i < 20 && cached < 192; ++i) {
    cached = CachedTokens(*OpenOver(store, "true"), request);
  }
  EXPECT_EQ(cached, 192);
  std::filesystem::remove_all(folder);
}

// The server's own adapters are as good as none: what was used last stays.
TEST(DiskPromptsTest, PromptsOfTheAdaptersOfAllRequestsStay) {
  const std::filesystem::path folder = ::testing::TempDir() + "own_" + std::to_string(::getpid());
  const std::filesystem::path adapter = folder / "adapter";
  WriteAdapterFolder(adapter, 512);
  const auto prompt = [](int first) {
    Request request{.max_tokens = 1};
    for (int i = 0; i < 200; ++i) request.ids.push_back(first + i * i % 1500);
    return request;
  };
  const auto one = Must(SnapshotStore::Open(folder / "one", uint64_t{64} << 20U, {}));
  EXPECT_EQ(CachedTokens(*OpenOver(one, "false"), prompt(300)), 0);
  EXPECT_EQ(CachedTokens(*OpenOver(one, "false"), prompt(300)), 192);
  uint64_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder / "one")) {
    if (file.is_regular_file()) bytes += file.file_size();
  }
  // There is room for two of three.
  const auto store = Must(SnapshotStore::Open(folder / "two", bytes * 5 / 2, {}));
  const std::vector<std::string> adapters = {adapter.string()};
  Request plain = prompt(300);
  plain.adapters.emplace();
  EXPECT_EQ(CachedTokens(*OpenOver(store, "false", adapters), plain), 0);
  EXPECT_EQ(CachedTokens(*OpenOver(store, "false", adapters), prompt(400)), 0);
  plain.ids = prompt(500).ids;
  EXPECT_EQ(CachedTokens(*OpenOver(store, "false", adapters), plain), 0);
  EXPECT_EQ(CachedTokens(*OpenOver(store, "false", adapters), prompt(400)), 192);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace rullama
