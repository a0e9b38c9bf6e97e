// Ranges, sums, addresses, the wait between tries and files of a store, without a network.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "downloads/answers.h"
#include "downloads/byte_ranges.h"
#include "downloads/digest.h"
#include "downloads/digest_follower.h"
#include "downloads/hub_places.h"
#include "downloads/partial_file.h"
#include "downloads/store_files.h"
#include "downloads/url.h"

namespace rullama::downloads {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

TEST(ByteRanges, JoinWhatTouches) {
  ByteRanges ranges;
  ranges.Add({10, 20});
  ranges.Add({30, 40});
  EXPECT_EQ(ranges.Frontier(), 0U);
  EXPECT_EQ(ranges.FirstGap(50), (ByteRange{0, 10}));
  ranges.Add({0, 10});
  EXPECT_EQ(ranges.Frontier(), 20U);
  EXPECT_EQ(ranges.FirstGap(50), (ByteRange{20, 30}));
  EXPECT_EQ(ranges.FirstGap(25), (ByteRange{20, 25}));
  ranges.Add({15, 35});
  EXPECT_THAT(ranges.ranges(), ElementsAre(ByteRange{0, 40}));
  EXPECT_EQ(ranges.FirstGap(40), std::nullopt);
  EXPECT_EQ(ranges.FirstGap(50), (ByteRange{40, 50}));
  ranges.Add({7, 7});
  EXPECT_EQ(ranges.bytes(), 40U);
}

TEST(Hasher, GivesTheSumsOfStores) {
  const std::string text = "hello\n";
  const auto bytes = std::as_bytes(std::span(text));
  Hasher sha256(DigestKind::kSha256, text.size());
  sha256.Add(bytes.first(2));
  sha256.Add(bytes.subspan(2));
  EXPECT_EQ(sha256.Hex(), "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  Hasher git(DigestKind::kGitBlob, text.size());  // git hash-object
  git.Add(bytes);
  EXPECT_EQ(git.Hex(), "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST(Url, IsHttpOrRefused) {
  const auto url = ParseUrl("HTTPS://Example.COM/a?b=c#d");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->Origin(), "https://example.com:443");
  EXPECT_EQ(url->Shown(), "https://Example.COM/a");
  for (const char* bad : {"", "http://", "file:///etc/passwd", "ftp://h/x", "javascript:1", "h/x",
                          "http://user:secret@h/x", "http://h/a b", "http://h:99999/"}) {
    const auto refused = ParseUrl(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().id, "pull.redirect");
  }
  EXPECT_EQ(ResolveUrl(*url, "/x")->text, ParseUrl("https://Example.COM/x")->text);
  EXPECT_EQ(ResolveUrl(*url, "//other/x")->Origin(), "https://other:443");
  EXPECT_FALSE(ResolveUrl(*url, ""));
  EXPECT_FALSE(ResolveUrl(*url, "gopher://127.0.0.1/x"));
  EXPECT_EQ(EscapePath("a/b c\xc3\xa4", "/"), "a/b%20c%C3%A4");
}

TEST(Url, KnowsWhichAddressesArePublic) {
  for (const char* host : {"127.0.0.1", "localhost", "x.localhost", "[::1]", "127.9.9.9"}) {
    EXPECT_EQ(KindOfHost(host), HostKind::kLoopback) << host;
  }
  for (const char* host :
       {"10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.0.1", "0.0.0.0", "169.254.169.254",
        "100.64.0.1", "224.0.0.1", "[fe80::1]", "[fc00::1]", "[::ffff:10.0.0.1]",
        "[64:ff9b::a00:1]", "[ff02::1]", "[fe80::1%25lo]"}) {
    EXPECT_EQ(KindOfHost(host), HostKind::kPrivate) << host;
  }
  for (const char* host : {"8.8.8.8", "172.32.0.1", "100.128.0.1", "[2606:4700::1]"}) {
    EXPECT_EQ(KindOfHost(host), HostKind::kPublic) << host;
  }
  EXPECT_EQ(KindOfHost("huggingface.co"), HostKind::kName);
  // Numbers that some resolvers take for addresses are addresses here too.
  EXPECT_EQ(KindOfHost(ParseUrl("http://0x7f.1/")->host), HostKind::kLoopback);
  EXPECT_EQ(KindOfHost(ParseUrl("http://167838211/")->host), HostKind::kPrivate);
}

TEST(Url, PlainHttpIsForThisMachine) {
  EXPECT_TRUE(CheckPlainHttp(*ParseUrl("http://127.0.0.1:80/"), false, true));
  EXPECT_TRUE(CheckPlainHttp(*ParseUrl("https://h/"), false, true));
  EXPECT_FALSE(CheckPlainHttp(*ParseUrl("http://h/"), false, false));
  EXPECT_TRUE(CheckPlainHttp(*ParseUrl("http://h/"), true, false));
  EXPECT_FALSE(CheckPlainHttp(*ParseUrl("http://h/"), true, true));
}

std::map<std::string, std::string> environment;
const char* Environment(const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : found->second.c_str();
}

TEST(Url, ProxiesAreThoseOfTheEnvironment) {
  environment = {{"http_proxy", "http://p:1"},
                 {"HTTPS_PROXY", "http://p:2"},
                 {"no_proxy", "localhost, .inside.example,127.0.0.1"}};
  const auto proxy = [](const char* url) { return ProxyOf(*ParseUrl(url), Environment); };
  EXPECT_EQ(proxy("http://h/"), "http://p:1");
  EXPECT_EQ(proxy("https://h/"), "http://p:2");
  EXPECT_EQ(proxy("http://127.0.0.1:9/"), "");
  EXPECT_EQ(proxy("https://a.inside.example/"), "");
  EXPECT_EQ(proxy("https://notinside.example/"), "http://p:2");
  environment = {{"ALL_PROXY", "socks5://p:3"}, {"NO_PROXY", "*"}};
  EXPECT_EQ(proxy("http://h/"), "");
  environment.erase("NO_PROXY");
  EXPECT_EQ(proxy("http://h/"), "socks5://p:3");
}

TEST(HubPlaces, AreThoseOfHuggingfaceHub) {
  environment = {{"HOME", "/h"}};
  EXPECT_EQ(HubPlaces::FromEnvironment(Environment).cache, "/h/.cache/huggingface/hub");
  environment["XDG_CACHE_HOME"] = "/x";
  EXPECT_EQ(HubPlaces::FromEnvironment(Environment).cache, "/x/huggingface/hub");
  environment["HF_HOME"] = "/f";
  EXPECT_EQ(HubPlaces::FromEnvironment(Environment).cache, "/f/hub");
  environment["HF_HUB_CACHE"] = "/c";
  environment["HF_ENDPOINT"] = "http://127.0.0.1:1/";
  environment["HF_HUB_OFFLINE"] = "yes";
  const HubPlaces places = HubPlaces::FromEnvironment(Environment);
  EXPECT_EQ(places.FolderOf("a/b"), "/c/models--a--b");
  EXPECT_EQ(places.LocksOf("a/b"), "/c/.locks/models--a--b");
  EXPECT_EQ(places.endpoint, "http://127.0.0.1:1");
  EXPECT_TRUE(places.offline);
  environment["HF_TOKEN"] = " hf_x \n";
  EXPECT_EQ(*places.Token(), "hf_x");
  environment["HF_TOKEN"] = "a\r\nHost: b";
  EXPECT_EQ(places.Token().error().id, "pull.unauthorized");
}

TEST(Backoff, DoublesAndKeepsToWhatTheServerAsksFor) {
  HttpOutcome busy;
  busy.head.status = 503;
  Backoff backoff(3);
  for (const int expected : {500, 1000, 2000}) {
    const auto wait = backoff.Next(busy);
    ASSERT_TRUE(wait);
    EXPECT_GE(wait->count(), expected * 8 / 10);
    EXPECT_LE(wait->count(), expected * 12 / 10);
  }
  EXPECT_FALSE(backoff.Next(busy)) << "no try is left";
  backoff.Progressed();
  EXPECT_TRUE(backoff.Next(busy));
  busy.retry_after_s = 7;
  EXPECT_EQ(backoff.Next(busy), std::chrono::seconds(7));
  busy.retry_after_s = 31;
  EXPECT_FALSE(backoff.Next(busy)) << "too long to wait";
}

class StoreFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "rullama_store_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    file_.name = "m";
    file_.bytes = 10;
    file_.digest = {DigestKind::kSha256, std::string(64, '0')};
    file_.blob = folder_ / "blob";
    file_.partial = folder_ / "blob.rullama.incomplete";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  std::string Text(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path folder_;
  PlannedFile file_;
};

TEST_F(StoreFilesTest, PartialFilesContinueAndGetTheirNameAtTheEnd) {
  {
    auto partial = PartialFile::Open(file_);
    ASSERT_TRUE(partial);
    ASSERT_TRUE(partial->Write(5, std::span("56789", 5)));
    partial->set_etag("\"e\"");
    ASSERT_TRUE(partial->SaveState());
  }
  EXPECT_EQ(PartialFile::BytesLeftBy(file_), 5U);
  auto partial = PartialFile::Open(file_);
  ASSERT_TRUE(partial);
  EXPECT_EQ(partial->etag(), "\"e\"");
  EXPECT_EQ(partial->done().FirstGap(10), (ByteRange{0, 5}));
  ASSERT_TRUE(partial->Write(0, std::span("01234", 5)));
  EXPECT_FALSE(fs::exists(file_.blob));
  ASSERT_TRUE(partial->Finish());
  EXPECT_EQ(Text(file_.blob), "0123456789");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(StoreFilesTest, PartialFilesWithoutTheBytesOfTheirStateBeginAnew) {
  Put(file_.partial, "012");
  Put(file_.partial.string() + ".json", R"({"etag":"","size":10,"ranges":[[0,5]]})");
  const auto partial = PartialFile::Open(file_);
  ASSERT_TRUE(partial);
  EXPECT_EQ(partial->done().bytes(), 0U);
}

TEST_F(StoreFilesTest, LinksOfOthersAreNotFollowed) {
  const fs::path victim = folder_ / "victim";
  Put(victim, "precious");
  fs::create_symlink(victim, file_.partial);
  fs::create_symlink(victim, file_.partial.string() + ".json");
  auto partial = PartialFile::Open(file_);
  ASSERT_TRUE(partial);
  ASSERT_TRUE(partial->Write(0, std::span("0123456789", 10)));
  ASSERT_TRUE(partial->SaveState());
  EXPECT_EQ(Text(victim), "precious");
}

TEST_F(StoreFilesTest, FoldersAreRemovedAsFarAsTheyAreEmpty) {
  fs::create_directories(folder_ / "a/b/c");
  Put(folder_ / "a/file", "");
  RemoveEmptyFolders(folder_ / "a/b/c", folder_);
  EXPECT_FALSE(fs::exists(folder_ / "a/b"));
  EXPECT_TRUE(fs::exists(folder_ / "a/file"));
}

TEST_F(StoreFilesTest, ADiskWithoutRoomIsToldBefore) {
  const Status status = CheckSpace(folder_ / "not/there/yet", uint64_t{1} << 50);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().id, "pull.no_space");
  EXPECT_TRUE(CheckSpace(folder_, 0));
}

TEST_F(StoreFilesTest, TheSumFollowsTheFrontier) {
  auto partial = PartialFile::Open(file_);
  ASSERT_TRUE(partial);
  DigestFollower follower(partial->fd(), DigestKind::kSha256, 10);
  ASSERT_TRUE(partial->Write(0, std::span("01234", 5)));
  follower.Advance(partial->done().Frontier());
  EXPECT_FALSE(follower.finished());
  ASSERT_TRUE(partial->Write(5, std::span("56789", 5)));
  follower.Advance(partial->done().Frontier());
  while (!follower.finished()) ::usleep(1000);
  EXPECT_EQ(follower.Hex(), "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882");
}

}  // namespace
}  // namespace rullama::downloads
