// Tests where plugins are looked for, which of several is taken, and which are refused.
#include "core/plugin/registry.h"

#include <rullama/sdk/export.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/fakes/fake_fixture.h"

namespace rullama::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Directories with copies of the fake, under a fresh root.
class RegistryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) / (std::string("registry_") + info->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
    // Whatever the umask: nobody else may write here.
    fs::permissions(root_, fs::perms::owner_all);
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path MakeDirectory(const std::string& name) {
    const fs::path directory = root_ / name;
    fs::create_directories(directory);
    fs::permissions(directory, fs::perms::owner_all);
    return directory;
  }
  // Puts a copy of the fake into a directory, as the plugin of this name.
  static fs::path PutPlugin(const fs::path& directory, const std::string& name = "fake") {
    const fs::path file = directory / ("librullama_backend_" + name + ".so");
    fs::copy_file(FakeFile("fake"), file);
    fs::permissions(file, fs::perms::owner_all);
    return file;
  }

  fs::path root_;
  RegistryOptions options_;
  const TestHost host_;
  const ScopedVariable script_{"RULLAMA_FAKE", ""};
};

TEST_F(RegistryTest, NothingAnywhere) {
  Registry registry(options_, host_.get());
  EXPECT_TRUE(registry.List().empty());
  ExpectError(registry.Find("cpu"), "backend.unknown", {"'cpu'", "usable backends: none"});
}

TEST_F(RegistryTest, SearchOrderAndShadowing) {
  const fs::path flag = PutPlugin(MakeDirectory("flag"));
  const fs::path config = PutPlugin(MakeDirectory("config"));
  const fs::path environment = PutPlugin(MakeDirectory("environment"));
  const fs::path installed = PutPlugin(MakeDirectory("lib/rullama"));
  const fs::path built = PutPlugin(MakeDirectory("built"));
  options_.flag_paths = {flag};
  options_.config_paths = {config.parent_path()};
  options_.environment = environment.parent_path().string();
  options_.program_directory = MakeDirectory("bin");
  options_.build_directory = built.parent_path();

  Registry registry(options_, host_.get());
  const auto& list = registry.List();
  ASSERT_EQ(list.size(), 5U);
  const fs::path expected[] = {flag, config, environment, installed, built};
  const char* sources[] = {"--plugin", "plugins in the configuration", "RULLAMA_PLUGIN_PATH",
                           "installation", "build tree"};
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i].path, expected[i]);
    EXPECT_EQ(list[i].source, sources[i]);
    EXPECT_EQ(list[i].name, "fake");
    EXPECT_EQ(list[i].state, i == 0 ? PluginState::kLoaded : PluginState::kShadowed);
    EXPECT_EQ(list[i].shadowed_by, i == 0 ? "" : flag.string());
  }
  const auto found = registry.Find("fake");
  ASSERT_TRUE(found) << found.error().ToString();
  EXPECT_EQ((*found)->origin(), flag.string());
}

TEST_F(RegistryTest, EachPlaceAloneIsEnough) {
  const fs::path file = PutPlugin(MakeDirectory("lib/rullama"));
  RegistryOptions by_flag, by_config, by_environment, by_program, by_build;
  by_flag.flag_paths = {file};
  by_config.config_paths = {file};
  by_environment.environment = ":/nonexistent:" + file.parent_path().string() + ":";
  by_program.program_directory = root_ / "bin";
  by_build.build_directory = file.parent_path();
  for (const RegistryOptions& options :
       {by_flag, by_config, by_environment, by_program, by_build}) {
    Registry registry(options, host_.get());
    const auto found = registry.Find("fake");
    ASSERT_TRUE(found) << found.error().ToString();
    EXPECT_EQ((*found)->origin(), file.string());
  }
}

TEST_F(RegistryTest, EachFolderOfLibrariesIsSearchedInOrder) {
  const fs::path first = PutPlugin(MakeDirectory("lib/an-architecture/rullama"));
  const fs::path second = PutPlugin(MakeDirectory("lib/rullama"));
  options_.program_directory = MakeDirectory("bin");
  options_.library_folders = {"lib/an-architecture", "lib"};
  Registry registry(options_, host_.get());
  EXPECT_THAT(registry.Names(), ::testing::ElementsAre("fake", "fake"));
  const auto& list = registry.List();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].path, first);
  EXPECT_EQ(list[0].state, PluginState::kLoaded);
  EXPECT_EQ(list[1].path, second);
  EXPECT_EQ(list[1].state, PluginState::kShadowed);
}

TEST_F(RegistryTest, CurrentDirectoryIsNotSearched) {
  const fs::path directory = MakeDirectory("current");
  PutPlugin(directory);
  const fs::path before = fs::current_path();
  fs::current_path(directory);
  options_.environment = ".::";
  options_.program_directory = root_ / "bin";
  Registry registry(options_, host_.get());
  const auto found = registry.Find("fake");
  fs::current_path(before);
  ExpectError(found, "backend.unknown", {});
  ASSERT_EQ(registry.List().size(), 1U);  // "." is relative; the empty entries are nothing
  EXPECT_THAT(registry.List()[0].error->message, HasSubstr("relative"));
}

TEST_F(RegistryTest, PrivilegedProgramsIgnoreTheEnvironment) {
  options_.environment = PutPlugin(MakeDirectory("environment")).parent_path().string();
  options_.privileged = true;
  Registry registry(options_, host_.get());
  ExpectError(registry.Find("fake"), "backend.unknown", {});
  ASSERT_EQ(registry.List().size(), 1U);
  EXPECT_THAT(registry.List()[0].error->message, HasSubstr("privileges"));
}

TEST_F(RegistryTest, WorldWritableDirectoryIsRefused) {
  const fs::path directory = MakeDirectory("open");
  const fs::path file = PutPlugin(directory);
  fs::permissions(directory, fs::perms::all);
  options_.environment = directory.string();
  options_.flag_paths = {file};
  Registry registry(options_, host_.get());
  ASSERT_EQ(registry.List().size(), 2U);
  for (const PluginListing& listing : registry.List()) {
    EXPECT_EQ(listing.state, PluginState::kRefused);
    EXPECT_EQ(listing.error->id, "plugin.path");
    EXPECT_THAT(listing.error->message, HasSubstr("writable for everyone"));
  }
}

TEST_F(RegistryTest, WorldWritableFileIsRefused) {
  const fs::path file = PutPlugin(MakeDirectory("files"));
  fs::permissions(file, fs::perms::all);
  options_.flag_paths = {file};
  Registry registry(options_, host_.get());
  EXPECT_EQ(registry.List().at(0).state, PluginState::kRefused);
}

TEST_F(RegistryTest, RefusedOneIsPassedOver) {
  const fs::path broken = MakeDirectory("broken") / "librullama_backend_fake.so";
  std::ofstream(broken) << "not a library";
  fs::permissions(broken, fs::perms::owner_all);
  const fs::path good = PutPlugin(MakeDirectory("good"));
  options_.flag_paths = {broken.parent_path(), good.parent_path()};
  Registry registry(options_, host_.get());
  const auto found = registry.Find("fake");
  ASSERT_TRUE(found);
  EXPECT_EQ((*found)->origin(), good.string());
  EXPECT_TRUE(registry.CheckNamedByUser());
}

// Else the user would measure or test another plugin than the one that was named.
TEST_F(RegistryTest, NamedOneThatCannotBeUsedIsAnError) {
  const fs::path good = PutPlugin(MakeDirectory("lib/rullama"));
  options_.program_directory = MakeDirectory("bin");
  const fs::path text = MakeDirectory("named") / "text.so";
  std::ofstream(text) << "not a library, however long the text may be, and it is long enough now";
  const fs::path open_file = PutPlugin(MakeDirectory("open"));
  fs::permissions(open_file, fs::perms::all);
  const fs::path open_directory = MakeDirectory("open_directory");
  fs::permissions(open_directory, fs::perms::all);
  const struct {
    fs::path path;
    const char* id;
    const char* says;
  } kCases[] = {
      {root_ / "none.so", "plugin.load", "No such file or directory"},
      {text, "plugin.load", "cannot load plugin"},
      {FakeFile("no_entry"), "plugin.entry", "rullama_plugin_query_v1"},
      {open_file, "plugin.path", "writable for everyone"},
      {open_directory, "plugin.path", "writable for everyone"},
  };
  for (const auto& bad : kCases) {
    for (const bool by_flag : {true, false}) {
      RegistryOptions options = options_;
      (by_flag ? options.flag_paths : options.config_paths) = {bad.path};
      const char* source = by_flag ? "--plugin names" : "plugins in the configuration names";
      Registry registry(options, host_.get());
      const std::vector<std::string> parts = {source, bad.path.string(), bad.says};
      ExpectError(registry.Find("fake"), bad.id, parts);
      ExpectError(registry.Find("no_such_backend"), bad.id, parts);
      ExpectError(registry.CheckNamedByUser(), bad.id, parts);
      EXPECT_EQ(registry.List().size(), 2U) << "the listing still shows everything";
    }
  }
}

TEST_F(RegistryTest, OnlyRefusedOnesGiveTheirReason) {
  const fs::path broken = MakeDirectory("broken") / "librullama_backend_fake.so";
  std::ofstream(broken) << "not a library";
  fs::permissions(broken, fs::perms::owner_all);
  options_.flag_paths = {broken.parent_path()};
  Registry registry(options_, host_.get());
  ExpectError(registry.Find("fake"), "plugin.load", {broken.string(), "usable backends: none"});
}

TEST_F(RegistryTest, MissingPathsGivenByTheUserAreListed) {
  options_.flag_paths = {root_ / "nothing.so", "relative/nothing.so"};
  options_.environment = (root_ / "nowhere").string();
  Registry registry(options_, host_.get());
  const auto& list = registry.List();
  ASSERT_EQ(list.size(), 3U);
  for (const PluginListing& listing : list) {
    EXPECT_EQ(listing.state, PluginState::kRefused);
    EXPECT_THAT(listing.error->message, HasSubstr("No such file or directory"));
  }
}

TEST_F(RegistryTest, FileOfAnyNameMayBeGiven) {
  const fs::path directory = MakeDirectory("given");
  const fs::path file = directory / "mine.so";
  fs::copy_file(FakeFile("fake"), file);
  fs::permissions(file, fs::perms::owner_all);
  options_.config_paths = {directory};
  {
    Registry registry(options_, host_.get());
    EXPECT_TRUE(registry.List().empty()) << "a directory gives only librullama_backend_*.so";
  }
  options_.config_paths = {file};
  Registry registry(options_, host_.get());
  EXPECT_TRUE(registry.Find("fake"));
}

TEST_F(RegistryTest, FileNameHasToMatchThePluginsName) {
  options_.config_paths = {PutPlugin(MakeDirectory("renamed"), "other").parent_path()};
  Registry registry(options_, host_.get());
  ExpectError(registry.Find("other"), "plugin.contract", {"calls itself 'fake'", "'other'"});
  ExpectError(registry.Find("fake"), "backend.unknown", {});
}

TEST_F(RegistryTest, FindDoesNotOpenOtherPlugins) {
  const fs::path directory = MakeDirectory("two");
  PutPlugin(directory);
  std::ofstream(directory / "librullama_backend_aaa.so") << "not a library";
  options_.config_paths = {directory};
  Registry registry(options_, host_.get());
  EXPECT_TRUE(registry.Find("fake"));
}

// A backend linked into the program.
class BuiltIn : public sdk::Backend {
 public:
  explicit BuiltIn(sdk::Host host) : Backend(host) { ++alive; }
  ~BuiltIn() override { --alive; }
  BuiltIn(const BuiltIn&) = delete;
  BuiltIn& operator=(const BuiltIn&) = delete;

  static inline int alive = 0;  // instances

  [[nodiscard]] std::string_view name() const override { return "built_in_test"; }
  [[nodiscard]] std::string_view version() const override { return "1"; }
  [[nodiscard]] std::string_view vendor() const override { return ""; }
  [[nodiscard]] const std::vector<sdk::DeviceInfo>& Devices() override { return devices_; }
  std::unique_ptr<sdk::Device> Open(uint32_t, std::span<const sdk::Option>) override {
    throw sdk::Error(RL_UNAVAILABLE, "only for listing");
  }

 private:
  std::vector<sdk::DeviceInfo> devices_ = {
      {.type = RL_DEVICE_CPU, .name = "this program", .driver = "none"}};
};

TEST_F(RegistryTest, NoFileTakesTheNameOfABuiltInBackend) {
  const ScopedVariable script("RULLAMA_FAKE", "name=built_in_test");
  options_.environment = PutPlugin(MakeDirectory("with"), "built_in_test").parent_path().string();
  Registry registry(options_, host_.get());
  registry.RegisterBuiltIn("built_in_test", RULLAMA_BACKEND_QUERY(BuiltIn));
  const auto found = registry.Find("built_in_test");
  ASSERT_TRUE(found) << found.error().ToString();
  EXPECT_EQ((*found)->origin(), "built in");
  const PluginListing& refused = registry.List().front();
  ASSERT_EQ(refused.state, PluginState::kRefused);
  EXPECT_EQ(refused.error->id, "plugin.reserved");
  registry.Shutdown();
}

TEST_F(RegistryTest, BuiltInBackendGoesThroughTheSameDoor) {
  options_.config_paths = {PutPlugin(MakeDirectory("with"))};
  Registry registry(options_, host_.get());
  registry.RegisterBuiltIn("built_in_test", RULLAMA_BACKEND_QUERY(BuiltIn));
  const auto found = registry.Find("built_in_test");
  ASSERT_TRUE(found) << found.error().ToString();
  EXPECT_EQ((*found)->origin(), "built in");
  ExpectError((*found)->Open(0, {}), "device.unavailable", {"only for listing"});
  ExpectError(registry.Find("nope"), "backend.unknown", {"usable backends: fake, built_in_test"});
  registry.Shutdown();
}

TEST_F(RegistryTest, APluginShutsDownWithItsLastUser) {
  auto registries = std::array{Registry(options_, host_.get()), Registry(options_, host_.get())};
  std::vector<std::shared_ptr<Plugin>> plugins;
  for (Registry& registry : registries) {
    registry.RegisterBuiltIn("built_in_test", RULLAMA_BACKEND_QUERY(BuiltIn));
    plugins.push_back(*registry.Find("built_in_test"));
  }
  EXPECT_EQ(BuiltIn::alive, 1);
  registries[0].Shutdown();
  registries[0].Shutdown();
  EXPECT_EQ(BuiltIn::alive, 1);
  EXPECT_EQ(plugins[1]->ListDevices()->devices.size(), 1U);
  registries[1].Shutdown();
  EXPECT_EQ(BuiltIn::alive, 0);
  Registry later(options_, host_.get());
  later.RegisterBuiltIn("built_in_test", RULLAMA_BACKEND_QUERY(BuiltIn));
  ASSERT_TRUE(later.Find("built_in_test"));
  EXPECT_EQ(BuiltIn::alive, 1);
  later.Shutdown();
  EXPECT_EQ(BuiltIn::alive, 0);
}

// A backend that looks for devices when it is first asked, as those of GPUs do.
class Late : public sdk::Backend {
 public:
  explicit Late(sdk::Host host) : Backend(host) {}

  static inline std::atomic<int> searches = 0;

  [[nodiscard]] std::string_view name() const override { return "late_test"; }
  [[nodiscard]] std::string_view version() const override { return "1"; }
  [[nodiscard]] std::string_view vendor() const override { return ""; }
  [[nodiscard]] const std::vector<sdk::DeviceInfo>& Devices() override {
    if (!devices_.empty()) return devices_;
    ++searches;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // others ask meanwhile
    devices_.push_back({.type = RL_DEVICE_CPU, .name = "late", .driver = "none"});
    return devices_;
  }
  std::unique_ptr<sdk::Device> Open(uint32_t, std::span<const sdk::Option>) override {
    throw sdk::Error(RL_UNAVAILABLE, "only for listing");
  }

 private:
  std::vector<sdk::DeviceInfo> devices_;
};

TEST_F(RegistryTest, APluginSearchesDevicesOnceForUsersOfTwoThreads) {
  auto registries = std::array{Registry(options_, host_.get()), Registry(options_, host_.get())};
  std::barrier together(std::ssize(registries));
  std::vector<std::thread> threads;
  for (Registry& registry : registries) {
    registry.RegisterBuiltIn("late_test", RULLAMA_BACKEND_QUERY(Late));
    const std::shared_ptr<Plugin> plugin = *registry.Find("late_test");
    threads.emplace_back([plugin, &together] {
      together.arrive_and_wait();
      EXPECT_EQ(plugin->ListDevices()->devices.size(), 1U);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Late::searches, 1);
  for (Registry& registry : registries) registry.Shutdown();
}

TEST(RegistryOptionsTest, FromProcess) {
  const ScopedVariable variable("RULLAMA_PLUGIN_PATH", "/a:/b");
  const RegistryOptions options = RegistryOptions::FromProcess();
  EXPECT_EQ(options.environment, "/a:/b");
  EXPECT_FALSE(options.privileged);
  EXPECT_TRUE(fs::exists(options.program_directory / "plugin_test"));
}

}  // namespace
}  // namespace rullama::testing
