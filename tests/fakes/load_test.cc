// Opening files that are plugins, and files that are not.
#include <sys/stat.h>

#include <fstream>

#include "tests/fakes/fake_fixture.h"

namespace rullama::testing {
namespace {

namespace fs = std::filesystem;

Result<std::shared_ptr<Plugin>> Load(const fs::path& path) {
  const TestHost host;
  return Plugin::Load(path, host.get());
}

TEST(Load, GoodPluginGivesItsDescription) {
  const Scripted fake("");
  const auto plugin = fake.Load();
  ASSERT_TRUE(plugin) << plugin.error().ToString();
  EXPECT_EQ((*plugin)->name(), "fake");
  EXPECT_EQ((*plugin)->version(), "1.2.3");
  EXPECT_EQ((*plugin)->vendor(), "rullama tests");
  EXPECT_EQ((*plugin)->build(), "scripted");
  EXPECT_EQ((*plugin)->origin(), FakeFile("fake").string());
  EXPECT_EQ((*plugin)->abi_version(), std::pair(RL_ABI_MAJOR, RL_ABI_MINOR));
  EXPECT_THAT(fake.host().log(), ::testing::HasSubstr("[fake] fake plugin loaded"));
  (*plugin)->Shutdown();
}

TEST(Load, SdkPluginNamesItsCompiler) {
  const auto plugin = Load(FakeFile("fake_sdk"));
  ASSERT_TRUE(plugin) << plugin.error().ToString();
  EXPECT_EQ((*plugin)->name(), "fake_sdk");
  EXPECT_THAT((*plugin)->build(), ::testing::HasSubstr("++ "));
  (*plugin)->Shutdown();
}

TEST(Load, RelativePathIsRelativeToTheCurrentDirectory) {
  const Scripted fake("");
  const TestHost host;
  const auto plugin = Plugin::Load(fs::relative(FakeFile("fake")), host.get());
  EXPECT_TRUE(plugin) << plugin.error().ToString();
}

TEST(Load, MissingFileGivesTheLoadersText) {
  ExpectError(Load("/nonexistent/librullama_backend_x.so"), "plugin.load",
              {"/nonexistent/librullama_backend_x.so", "No such file or directory"});
}

TEST(Load, TextFileIsNotALibrary) {
  const fs::path path = fs::path(::testing::TempDir()) / "text_plugin.so";
  std::ofstream(path) << "#!/bin/sh\necho this is no library, however long the text may be\n"
                      << std::string(200, '\n');
  ExpectError(Load(path), "plugin.load", {path.string(), "invalid ELF header"});
}

TEST(Load, EmptyFile) {
  const fs::path path = fs::path(::testing::TempDir()) / "empty_plugin.so";
  std::ofstream{path};
  ExpectError(Load(path), "plugin.load", {path.string(), "file too short"});
}

TEST(Load, LibraryCutShort) {
  const fs::path path = fs::path(::testing::TempDir()) / "cut_plugin.so";
  fs::copy_file(FakeFile("fake"), path, fs::copy_options::overwrite_existing);
  fs::resize_file(path, 40);
  ExpectError(Load(path), "plugin.load", {path.string(), "file too short"});
}

// The dynamic loader would map missing pages, and the process would end with SIGBUS.
TEST(Load, LibraryCutAnywhere) {
  const fs::path path = fs::path(::testing::TempDir()) / "cut_anywhere_plugin.so";
  const uint64_t whole = fs::file_size(FakeFile("fake"));
  size_t lengths = 0;
  for (uint64_t size = 64; size < whole; size += 1 + whole / 97, ++lengths) {
    fs::copy_file(FakeFile("fake"), path, fs::copy_options::overwrite_existing);
    fs::resize_file(path, size);
    ExpectError(Load(path), "plugin.load",
                {path.string(), "it has " + std::to_string(size) + " bytes, expected "});
  }
  EXPECT_GT(lengths, 90U);
  fs::copy_file(FakeFile("fake"), path, fs::copy_options::overwrite_existing);
  fs::resize_file(path, whole - 1);
  ExpectError(Load(path), "plugin.load", {"expected " + std::to_string(whole)});
  fs::remove(path);
}

TEST(Load, OtherArchitecture) {
  const fs::path path = fs::path(::testing::TempDir()) / "foreign_plugin.so";
  fs::copy_file(FakeFile("fake"), path, fs::copy_options::overwrite_existing);
  // e_machine, two bytes at offset 18 of an ELF header; 8 is MIPS.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(18);
  file.write("\x08\x00", 2);
  file.close();
  ExpectError(Load(path), "plugin.load", {path.string(), "cannot open shared object file"});
}

TEST(Load, DirectoryAndFifo) {
  ExpectError(Load("/tmp"), "plugin.load", {"a directory"});
  const fs::path path = fs::path(::testing::TempDir()) / "fifo_plugin.so";
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  ExpectError(Load(path), "plugin.load", {"not a regular file"});
}

TEST(Load, UnresolvedSymbolIsNamed) {
  ExpectError(Load(FakeFile("unresolved")), "plugin.load",
              {"undefined symbol: rullama_symbol_that_nobody_defines"});
}

TEST(Load, LibraryWithoutEntryPoint) {
  ExpectError(Load(FakeFile("no_entry")), "plugin.entry", {"rullama_plugin_query_v1"});
}

}  // namespace
}  // namespace rullama::testing
