#include "core/plugin/host_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rullama/sdk/backend.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>

namespace rullama {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class HostTableTest : public ::testing::Test {
 protected:
  HostTableTest() {
    HostOptions options;
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log_, true);
    sink->set_pattern("%l %v");
    options.logger = std::make_shared<spdlog::logger>("test", std::move(sink));
    options.cancelled = cancelled_;
    options.cache_directory = directory_;
    table_ = PluginHost::MakeTable(std::make_shared<PluginHost>(options), "cpu");
  }
  ~HostTableTest() override { fs::remove_all(directory_); }

  const fs::path directory_ = fs::path(::testing::TempDir()) / "host_table_test_cache";
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::ostringstream log_;
  const rl_host_v1* table_ = nullptr;
};

TEST_F(HostTableTest, IsComplete) {
  EXPECT_EQ(table_->struct_size, sizeof(rl_host_v1));
  EXPECT_EQ(table_->abi_major, RL_ABI_MAJOR);
  EXPECT_EQ(table_->abi_minor, RL_ABI_MINOR);
}

TEST_F(HostTableTest, LogsWithTheComponent) {
  const sdk::Host host(*table_);
  host.Log(RL_LOG_WARNING, "slow path");
  EXPECT_THAT(log_.str(), HasSubstr("warning [cpu] slow path\n"));
  table_->log(table_->context, 77, sdk::Str("odd level"));
  EXPECT_THAT(log_.str(), HasSubstr("error [cpu] odd level\n"));
}

TEST_F(HostTableTest, LogLinesCannotForgeOthers) {
  sdk::Host(*table_).Log(RL_LOG_INFO, "a\nerror [vulkan] b\x1B[2J {} \xFF");
  EXPECT_EQ(log_.str(), "info [cpu] a error [vulkan] b\\x1b[2J {} \\xff\n");
  table_->log(table_->context, RL_LOG_INFO, {nullptr, 5});
  EXPECT_THAT(log_.str(), HasSubstr("info [cpu] \n"));
}

TEST_F(HostTableTest, Cancelled) {
  const sdk::Host host(*table_);
  EXPECT_FALSE(host.Cancelled());
  *cancelled_ = true;
  EXPECT_TRUE(host.Cancelled());
}

TEST_F(HostTableTest, Blobs) {
  const sdk::Host host(*table_);
  const std::vector<std::byte> data(100, std::byte{7});
  EXPECT_TRUE(host.BlobGet("k").empty());
  EXPECT_TRUE(host.BlobPut("k", data));
  EXPECT_EQ(host.BlobGet("k"), data);
  // A small buffer gets what fits, and learns the full size.
  std::vector<std::byte> small(10);
  EXPECT_EQ(table_->blob_get(table_->context, {"k", 1}, small.data(), small.size()), 100U);
  EXPECT_EQ(small[9], std::byte{7});
}

TEST_F(HostTableTest, BlobMisuse) {
  EXPECT_EQ(table_->blob_get(table_->context, {nullptr, 4}, nullptr, 0), 0U);
  EXPECT_EQ(table_->blob_put(table_->context, {nullptr, 4}, "x", 1), RL_INVALID_ARGUMENT);
  EXPECT_EQ(table_->blob_put(table_->context, {"k", 1}, nullptr, 1), RL_INVALID_ARGUMENT);
  EXPECT_EQ(table_->blob_put(table_->context, {"k", uint64_t{1} << 60}, "x", 1),
            RL_INVALID_ARGUMENT);
}

TEST(Printable, LimitsAndCleans) {
  EXPECT_EQ(Printable({"abcdef", 6}, 3), "abc");
  EXPECT_EQ(Printable({"\xC3\xA9", 2}, 10), "\xC3\xA9");
  EXPECT_EQ(Printable({"\xC3\xA9", 2}, 1), "\\xc3");
  EXPECT_EQ(Printable({"a\0b", 3}, 10), "a\\x00b");
  EXPECT_EQ(Printable({nullptr, 3}, 10), "");
}

}  // namespace
}  // namespace rullama
