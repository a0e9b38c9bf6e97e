// Several models, how long they stay, and what happens when a device is lost.
#include "server/models.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/must_test_util.h"
#include "tests/fakes/adapter_folder.h"

namespace rullama::server {
namespace {

using ::testing::HasSubstr;

constexpr const char* kServedModel = RULLAMA_SOURCE_DIR "/tests/data/tiny-e2b-Q4_K_M.gguf";
constexpr const char* kCpuFolder = RULLAMA_BINARY_DIR "/lib/rullama";
constexpr const char* kFakes = RULLAMA_BINARY_DIR "/fakes";

Result<std::shared_ptr<Engine>> Open(const std::string& backend) {
  return Engine::Open({.model = kServedModel,
                       .backend = backend,
                       .settings = {{"context.capacity", "64"}},
                       .plugin_paths = {backend == "cpu" ? kCpuFolder : kFakes}});
}

ServedModel Served(const std::string& id, const std::string& backend = "cpu") {
  return {.id = id, .load = [backend] { return Open(backend); }};
}

std::string CodeOf(const ApiResult<UsedModel>& result) {
  return result ? "ok" : result.error().code;
}

std::vector<std::string> Loaded(const Models& models) {
  std::vector<std::string> ids;
  for (const ModelState& state : models.All()) {
    if (state.loaded) ids.push_back(state.model.id);
  }
  return ids;
}

// Waits until `condition` holds; the test fails after five minutes.
template <typename Condition>
void WaitUntil(const Condition& condition) {
  for (int i = 0; i < 30'000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(condition());
}

TEST(ModelsTest, AliasesAreNamesOfModels) {
  Metrics metrics;
  std::vector<ServedModel> served = {Served("one"), Served("two-b")};
  Models models(served, Must(served.front().load()),
                {.aliases = {{.name = "two-*", .model = "one"}, {.name = "b", .model = "one"}}},
                metrics);
  for (const char* name : {"two-a", "two-", "b", "one"}) {
    const auto used = models.Acquire(name);
    ASSERT_TRUE(used) << used.error().message;
    EXPECT_EQ(used->id, name);
  }
  EXPECT_EQ(models.Find("two-b")->model.id, "two-b") << "a model's own name comes first";
  EXPECT_EQ(CodeOf(models.Acquire("two")), "model_not_found");
}

TEST(ModelsTest, NamesMayEndInAnAdapter) {
  Metrics metrics;
  ServedModel adapted = Served("m");
  adapted.adapters = {"one.gguf", "one", "two.gguf"};
  std::vector<ServedModel> served = {std::move(adapted), Served("other")};
  Models models(served, Must(served.front().load()),
                {.aliases = {{.name = "x-*", .model = "m"}, {.name = "*", .model = "other"}}},
                metrics);
  const auto adapter = [&models](const char* name) {
    const auto used = models.Acquire(name);
    EXPECT_TRUE(used) << name;
    EXPECT_EQ(used->id, name);
    return used->adapter.value_or(-1);
  };
  EXPECT_EQ(adapter("m:one"), 1) << "the whole name comes first";
  EXPECT_EQ(adapter("m:one.gguf"), 0);
  EXPECT_EQ(adapter("m:two"), 2);
  EXPECT_EQ(adapter("x-7:two"), 2);
  EXPECT_EQ(models.Find("x-7:two")->model.id, "m");
  EXPECT_EQ(models.Find("m:none")->model.id, "other") << "of the pattern";
}

TEST(ModelsTest, FactorsOfAdaptersOutlastUnloading) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "models_adapter";
  WriteAdapterFolder(folder, 512);
  const auto open = [folder] {
    return Engine::Open({.model = kServedModel,
                         .backend = "cpu",
                         .settings = {{"context.capacity", "64"}},
                         .adapters = {folder.string()},
                         .choose_adapters = true,
                         .plugin_paths = {kCpuFolder}});
  };
  Metrics metrics;
  Models models({{.id = "a", .load = open}, Served("b")}, Must(open()), {.max_loaded = 1}, metrics);
  const std::vector<AdapterScale> scales = {{.id = 0, .scale = 0.5}};
  ASSERT_TRUE(models.SetAdapterScales(*models.Acquire("a"), scales));
  ASSERT_EQ(CodeOf(models.Acquire("b")), "ok");
  ASSERT_EQ(Loaded(models), std::vector<std::string>({"b"}));
  EXPECT_EQ(models.Acquire("a")->engine->adapters()[0].scale, 0.5);
}

TEST(ModelsTest, TheOneThatIsUsedLeastGivesItsPlaceUp) {
  Metrics metrics;
  Models models({Served("a"), Served("b:latest"), Served("c")}, Must(Open("cpu")),
                {.max_loaded = 2, .load_timeout = std::chrono::milliseconds(50)}, metrics);
  EXPECT_EQ(CodeOf(models.Acquire("d")), "model_not_found");
  EXPECT_EQ(CodeOf(models.Acquire("")), "missing_required_parameter");
  EXPECT_THAT(models.Acquire("d").error().message, HasSubstr("'a', 'b:latest', 'c'"));
  EXPECT_EQ(Loaded(models), std::vector<std::string>({"a"}));
  {
    const auto b = models.Acquire("b");
    ASSERT_TRUE(b) << b.error().message;
    EXPECT_EQ(b->id, "b:latest");
    EXPECT_EQ(CodeOf(models.Acquire("c")), "ok") << "in the place of a";
    EXPECT_EQ(Loaded(models), std::vector<std::string>({"b:latest", "c"}));
    const auto c = models.Acquire("c");
    EXPECT_EQ(CodeOf(models.Acquire("a")), "model_loading") << "both are in use";
  }
  EXPECT_EQ(CodeOf(models.Acquire("a")), "ok");
  EXPECT_EQ(Loaded(models), std::vector<std::string>({"a", "b:latest"})) << "b was in use longer";
}

TEST(ModelsTest, WhoWaitsForAPlaceComesBeforeLaterRequests) {
  Metrics metrics;
  Models models({Served("a"), Served("b")}, Must(Open("cpu")), {}, metrics);
  std::optional<UsedModel> held = *models.Acquire("a");
  std::mutex mutex;
  std::vector<std::string> order;
  const auto use = [&](const std::string& id) {
    const auto used = models.Acquire(id);
    const std::lock_guard lock(mutex);
    order.push_back(CodeOf(used) + " " + id);
  };
  std::thread other([&] { use("b"); });
  WaitUntil([&] { return models.stats().waiting == 1; });
  std::thread later([&] { use("a"); });
  WaitUntil([&] { return models.stats().waiting == 2; });
  held.reset();
  other.join();
  later.join();
  EXPECT_EQ(order, std::vector<std::string>({"ok b", "ok a"}));
  EXPECT_EQ(models.stats().waiting, 0);
}

TEST(ModelsTest, AClientThatLeavesWaitsNoLonger) {
  Metrics metrics;
  Models models({Served("a"), Served("b")}, Must(Open("cpu")), {}, metrics);
  const auto held = models.Acquire("a");
  std::atomic<bool> left = false;
  std::string code;
  std::thread other([&] { code = CodeOf(models.Acquire("b", &left)); });
  WaitUntil([&] { return models.stats().waiting == 1; });
  left = true;
  models.LookAtLeft();
  other.join();
  EXPECT_EQ(code, "client_left");
  EXPECT_EQ(models.stats().waiting, 0);
  EXPECT_EQ(CodeOf(models.Acquire("a", &left)), "ok") << "there is nothing to wait for";
}

TEST(ModelsTest, AModelTakesTheMemoryOfThoseThatNobodyUses) {
  Metrics metrics;
  std::shared_ptr<Engine> first = Must(Open("cpu"));
  const std::weak_ptr<Engine> other = first;
  ServedModel large{.id = "large", .load = [other]() -> Result<std::shared_ptr<Engine>> {
                      if (!other.expired()) {
                        return MakeError(ErrorKind::kOutOfMemory, "device.memory", "too little");
                      }
                      return Open("cpu");
                    }};
  Models models({Served("a"), std::move(large)}, std::move(first), {.max_loaded = 2}, metrics);
  {
    const auto a = models.Acquire("a");
    const auto refused = models.Acquire("large");
    ASSERT_EQ(CodeOf(refused), "out_of_memory") << "a is in use";
    EXPECT_EQ(refused.error().status, 503);
    ASSERT_EQ(refused.error().fields.size(), 1u);
    EXPECT_EQ(refused.error().fields[0].name, "Retry-After");
  }
  EXPECT_EQ(CodeOf(models.Acquire("large")), "ok");
  EXPECT_EQ(Loaded(models), std::vector<std::string>({"large"}));
}

TEST(ModelsTest, AModelGoesWhenItsTimeIsOver) {
  Metrics metrics;
  Models models({Served("a")}, Must(Open("cpu")), {}, metrics);
  const auto answer = [&] {
    const auto used = models.Acquire("");
    Must(Must(used->engine->Submit({.prompt = "The prince", .max_tokens = 1})).Wait());
    models.Keep("a", std::chrono::milliseconds(100));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_EQ(Loaded(models).size(), 1U) << "in use";
    EXPECT_TRUE(models.All().front().expires);
  };
  EXPECT_FALSE(models.All().front().expires) << "stays for ever";
  answer();
  WaitUntil([&] { return Loaded(models).empty(); });
  const EngineStats after = models.stats();
  EXPECT_EQ(after.slots, 0);
  EXPECT_EQ(after.prefix_misses, 1U) << "counts outlive the engine";
  answer();
  EXPECT_EQ(models.stats().prefix_misses, 2U);
}

TEST(ModelsTest, ALostDeviceIsOpenedAgainOnce) {
  Metrics metrics;
  Models models({Served("a", "faulty")}, Must(Open("faulty")), {}, metrics);
  const auto ask = [&] {
    const auto used = models.Acquire("");
    if (!used) return used.error().code;
    auto answer = Must(used->engine->Submit({.prompt = "It", .max_tokens = 1}));
    const auto end = answer.Wait();
    return end ? std::string("ok") : end.error().id;
  };
  ::setenv("RULLAMA_FAULTY_LOST", "1", 1);
  EXPECT_EQ(ask(), "device.lost");
  ::unsetenv("RULLAMA_FAULTY_LOST");
  EXPECT_EQ(ask(), "ok") << "waits for the new one";
  EXPECT_FALSE(models.lost());
  EXPECT_FALSE(models.failure());
  EXPECT_THAT(metrics.Text({}), HasSubstr("rullama_device_lost_total 1\n"));
  ::setenv("RULLAMA_FAULTY_LOST", "1", 1);
  EXPECT_EQ(ask(), "device.lost");
  ::unsetenv("RULLAMA_FAULTY_LOST");
  WaitUntil([&] { return models.failure().has_value(); });
  EXPECT_EQ(models.failure()->kind, ErrorKind::kBackend);
  EXPECT_EQ(ask(), "device_lost");
}

}  // namespace
}  // namespace rullama::server
