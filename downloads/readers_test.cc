// What servers and environments say, as it is read: lists of files, manifests, fields of HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "downloads/file_fetch.h"
#include "downloads/hub_files.h"
#include "downloads/hub_name.h"
#include "downloads/ollama_registry.h"
#include "downloads/partial_file.h"

namespace rullama::downloads {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<HubFile> Named(const std::vector<std::string>& paths) {
  std::vector<HubFile> files;
  for (const std::string& path : paths) files.push_back({.path = path, .bytes = files.size() + 1});
  return files;
}

// The chosen paths, the model first.
std::vector<std::string> Chosen(const std::vector<std::string>& paths, const HubChoice& choice) {
  const auto selection = ChooseHubFiles(Named(paths), choice, "a/b");
  if (!selection) return {selection.error().id};
  std::vector<std::string> chosen;
  for (const size_t part : selection->parts) chosen.push_back(paths[part]);
  if (selection->mmproj) chosen.push_back(paths[*selection->mmproj]);
  if (selection->mtp) chosen.push_back(paths[*selection->mtp]);
  return chosen;
}

TEST(HubName, TakesUserRepositoryAndQuant) {
  const auto name = ParseHubName("ggml-org/gemma-3-270m-it-GGUF:Q8_0");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->repo, "ggml-org/gemma-3-270m-it-GGUF");
  EXPECT_EQ(name->quant, "Q8_0");
  EXPECT_EQ(ParseHubName("a/b:latest")->quant, "");
  for (const char* bad : {"", "a", "a/", "/a", "../x", "a/..", "a/b/c", "a/b:", "a/b:../x",
                          "a--b/c", "-x/y", "a/b c", "a/b\n", "a/b@c", "a/.git", "\xc3\xa4/b"}) {
    const auto refused = ParseHubName(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().id, "pull.name") << bad;
  }
  EXPECT_FALSE(ParseHubName("a/" + std::string(97, 'b')));
}

TEST(HubName, IsFoundAfterItsHost) {
  EXPECT_EQ(AfterHubHost("hf.co/a/b:Q4_0"), "a/b:Q4_0");
  EXPECT_EQ(AfterHubHost("https://huggingface.co/a/b"), "a/b");
  EXPECT_EQ(ParseHubName("https://huggingface.co/a/b:Q8_0")->ToString(), "hf.co/a/b:Q8_0");
  EXPECT_EQ(ParseHubName("https://example.com/a/b").error().id, "pull.name");
  EXPECT_EQ(AfterHubHost("gemma4:e2b"), std::nullopt);
  EXPECT_EQ(AfterHubHost("http://hf.co/a/b"), std::nullopt);
}

TEST(HubFiles, PathsStayInTheirFolder) {
  EXPECT_TRUE(IsSafePath("BF16/m-BF16.gguf"));
  for (const char* bad : {"", "/a", "a//b", "a/", ".", "..", "a/../b", "./a", "a\\b", "a\nb"}) {
    EXPECT_FALSE(IsSafePath(bad)) << bad;
  }
  EXPECT_FALSE(IsSafePath(std::string(256, 'e')));
  EXPECT_FALSE(IsSafePath(std::string("a\0b", 3)));
}

TEST(HubFiles, TreesAreReadWhole) {
  const std::string oid(64, 'a');
  const std::string git(40, 'b');
  const std::string tree = R"([{"type":"directory","path":"x","size":0,"oid":"0"},)"
                           R"({"type":"file","path":"x/m.gguf","size":5,"oid":")" +
                           git + R"(","lfs":{"oid":")" + oid + R"(","size":5}},)" +
                           R"({"type":"file","path":"c.json","size":2,"oid":")" + git + R"("}])";
  const auto files = ReadHubTree(tree);
  ASSERT_TRUE(files) << files.error().message;
  ASSERT_EQ(files->size(), 2U);
  EXPECT_EQ((*files)[0].digest.ToString(), "sha256:" + oid);
  EXPECT_EQ((*files)[1].digest.ToString(), "sha1:" + git);
  for (const std::string& bad :
       {std::string("{}"), std::string("<html>"), std::string(), std::string("[5]"),
        std::string(100'000, '['),
        R"([{"type":"file","path":"../m","size":5,"oid":")" + git + "\"}]",
        R"([{"type":"file","path":"m","size":-5,"oid":")" + git + "\"}]",
        R"([{"type":"file","path":"m","size":"5","oid":")" + git + "\"}]",
        std::string(R"([{"type":"file","path":"m","size":5,"oid":"../x"}])"),
        R"([{"type":"file","path":"m","size":5,"oid":")" + git + R"(","lfs":5}])",
        R"([{"type":"file","path":"m","size":5,"oid":"x","lfs":{"oid":")" + oid +
            R"(","size":6}}])"}) {
    const auto refused = ReadHubTree(bad);
    ASSERT_FALSE(refused) << bad.substr(0, 80);
    EXPECT_EQ(refused.error().id, "pull.protocol");
  }
}

TEST(HubFiles, CommitsAreSums) {
  EXPECT_EQ(*ReadHubCommit(R"({"sha":"0123456789012345678901234567890123456789"})"),
            "0123456789012345678901234567890123456789");
  for (const char* bad : {"[]", R"({"sha":5})", R"({"sha":"main"})", "{}", "null"}) {
    EXPECT_FALSE(ReadHubCommit(bad)) << bad;
  }
}

TEST(HubFiles, NextPagesAreInTheField) {
  EXPECT_EQ(NextPage(R"(<https://h/x?cursor=2>; rel="next")"), "https://h/x?cursor=2");
  EXPECT_EQ(NextPage(R"(<https://h/0>; rel="prev", <https://h/2>; rel="next")"), "https://h/2");
  EXPECT_EQ(NextPage(R"(<https://h/0>; rel="prev")"), "");
  EXPECT_EQ(NextPage("><"), "");
}

TEST(HubFiles, QuantsAreTheEndOfANameOrAFolder) {
  const std::vector<std::string> paths = {"BF16/m-BF16.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf",
                                          "m-UD-Q4_K_XL.gguf", "m.Q6_K.gguf"};
  EXPECT_THAT(Chosen(paths, {}), ElementsAre("m-Q4_K_M.gguf"));
  EXPECT_THAT(Chosen(paths, {.quant = "q8_0"}), ElementsAre("m-Q8_0.gguf"));
  EXPECT_THAT(Chosen(paths, {.quant = "bf16"}), ElementsAre("BF16/m-BF16.gguf"));
  EXPECT_THAT(Chosen(paths, {.quant = "UD-Q4_K_XL"}), ElementsAre("m-UD-Q4_K_XL.gguf"));
  EXPECT_THAT(Chosen(paths, {.quant = "Q6_K"}), ElementsAre("m.Q6_K.gguf"));
  EXPECT_THAT(Chosen(paths, {.quant = "K_M"}), ElementsAre("pull.not_found"));
  EXPECT_THAT(Chosen(paths, {.file = "m-Q8_0.gguf"}), ElementsAre("m-Q8_0.gguf"));
  EXPECT_THAT(Chosen({"m-IQ4_XS.gguf", "mmproj-m.gguf", "mtp-m-Q4_0.gguf", "imatrix.gguf"},
                     {.mmproj = false}),
              ElementsAre("m-IQ4_XS.gguf"));
  EXPECT_THAT(Chosen({"mmproj-m.gguf", "m.safetensors"}, {}), ElementsAre("pull.not_found"));
  const auto missing = ChooseHubFiles(Named(paths), {.quant = "Q5_K_M"}, "a/b");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("BF16, Q4_K_M, Q4_K_XL, Q6_K, Q8_0"));
}

TEST(HubFiles, PartsComeTogetherOrNotAtAll) {
  const std::vector<std::string> paths = {"d/m-Q4_0-00002-of-00002.gguf",
                                          "d/m-Q4_0-00001-of-00002.gguf",
                                          "d/m-Q2_K-00001-of-00002.gguf"};
  EXPECT_THAT(Chosen(paths, {.quant = "Q4_0"}), ElementsAre(paths[1], paths[0]));
  EXPECT_THAT(Chosen(paths, {.file = paths[0]}), ElementsAre(paths[1], paths[0]));
  const auto missing = ChooseHubFiles(Named(paths), {.quant = "Q2_K"}, "a/b");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().id, "pull.incomplete");
  EXPECT_THAT(missing.error().message, HasSubstr("d/m-Q2_K-00002-of-00002.gguf"));
}

TEST(HubFiles, SidecarsAreTheNearest) {
  const std::vector<std::string> paths = {"m-Q4_K_M.gguf",     "mmproj-m-BF16.gguf",
                                          "mmproj-m-f16.gguf", "mmproj-m-f32.gguf",
                                          "mtp-m-Q8_0.gguf",   "mtp-m-Q4_0.gguf"};
  EXPECT_THAT(Chosen(paths, {.mtp = true}),
              ElementsAre("m-Q4_K_M.gguf", "mmproj-m-f16.gguf", "mtp-m-Q4_0.gguf"));
  EXPECT_THAT(Chosen({"a/m.gguf", "a/mmproj-f32.gguf", "mmproj-f16.gguf"}, {}),
              ElementsAre("a/m.gguf", "a/mmproj-f32.gguf"));
}

TEST(RegistryName, IsOneOfOllamaWithoutAScheme) {
  EXPECT_EQ(ParseRegistryName("gemma4:e2b")->ToString(), "gemma4:e2b");
  EXPECT_EQ(ParseRegistryName("127.0.0.1:5000/library/tiny")->host, "127.0.0.1:5000");
  for (const char* bad : {"tiny:la test", "../tiny", "a/b/c/d/e", "tiny:", ":latest", "-tiny",
                          "./m.gguf", "~/m.gguf", "h:99999999/a/b", "https://example.com/tiny"}) {
    const auto refused = ParseRegistryName(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().id, "pull.name") << bad;
  }
}

std::string Manifest(const std::string& layer) {
  const std::string hex(64, 'a');
  return R"({"schemaVersion":2,"config":{"digest":"sha256:)" + hex + R"(","size":3},"layers":[)" +
         layer + "]}";
}

std::string Layer(const std::string& kind, const std::string& digest, const std::string& size) {
  return R"({"mediaType":")" + kind + R"(","digest":")" + digest + R"(","size":)" + size + "}";
}

TEST(RegistryManifest, ListsItsBlobs) {
  const std::string digest = "sha256:" + std::string(64, 'b');
  const std::string image = "application/vnd.ollama.image.";
  const auto blobs = ReadRegistryManifest(Manifest(Layer(image + "model", digest, "7") + "," +
                                                   Layer(image + "projector", digest, "8")));
  ASSERT_TRUE(blobs) << blobs.error().message;
  ASSERT_EQ(blobs->size(), 3U);
  EXPECT_EQ((*blobs)[0].kind, "model");
  EXPECT_EQ((*blobs)[0].bytes, 7U);
  EXPECT_EQ((*blobs)[2].kind, "config");
  for (const std::string& bad :
       {std::string("{}"), Manifest(""), Manifest("5"),
        Manifest(Layer(image + "model", "md5:0", "7")),
        Manifest(Layer(image + "model", "sha256:../../../evil", "7")),
        Manifest(Layer(image + "model", digest, "-1")), Manifest(Layer("x/tar", digest, "7")),
        Manifest(Layer(image + "model", digest, "\"7\"")),
        Manifest(Layer(image + "template", digest, "7")),
        Manifest(Layer(image + "model", digest, "9007199254740993"))}) {
    const auto refused = ReadRegistryManifest(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().id, "pull.protocol") << bad;
  }
}

TEST(RegistryToken, FollowsTheChallenge) {
  const auto challenge = ParseChallenge(
      R"(Bearer realm="https://auth.example/token?a=\"b\"",service="r",scope="repository:x:pull")");
  ASSERT_TRUE(challenge);
  EXPECT_EQ(challenge->realm, R"(https://auth.example/token?a="b")");
  EXPECT_EQ(challenge->service, "r");
  EXPECT_EQ(challenge->scope, "repository:x:pull");
  for (const char* other :
       {"", "Basic realm=\"x\"", "Bearer", "Bearer service=\"x\"", "Bearer =\""}) {
    EXPECT_FALSE(ParseChallenge(other)) << other;
  }
  EXPECT_EQ(*ReadRegistryToken(R"({"token":"t"})"), "t");
  EXPECT_EQ(*ReadRegistryToken(R"({"access_token":"t"})"), "t");
  EXPECT_FALSE(ReadRegistryToken(R"({"token":"a\r\nHost: b"})"));
  EXPECT_FALSE(ReadRegistryToken("{}"));
}

TEST(ContentRange, HasToBeOne) {
  const auto range = ParseContentRange("bytes 10-19/100");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->range, (ByteRange{10, 20}));
  EXPECT_EQ(range->whole, 100U);
  EXPECT_EQ(ParseContentRange("bytes 0-0/*")->whole, std::nullopt);
  for (const char* bad : {"", "bytes */100", "bytes 19-10/100", "bytes 0-100/100", "bits 0-1/2",
                          "bytes 0-18446744073709551615/*", "bytes -1-2/3", "bytes 1-2"}) {
    EXPECT_FALSE(ParseContentRange(bad)) << bad;
  }
}

TEST(PartialState, IsReadBackOrNotBelieved) {
  PartialState state{.etag = "\"x\"", .done = {}};
  state.done.Add({0, 10});
  state.done.Add({20, 30});
  const std::string text = PartialStateText(state, 40);
  const auto back = ParsePartialState(text, 40);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->etag, "\"x\"");
  EXPECT_THAT(back->done.ranges(), ElementsAre(ByteRange{0, 10}, ByteRange{20, 30}));
  EXPECT_FALSE(ParsePartialState(text, 41)) << "of another file";
  for (const char* bad :
       {"", "[]", R"({"size":40})", R"({"size":40,"etag":"","ranges":[[0,41]]})",
        R"({"size":40,"etag":"","ranges":[[5,5]]})", R"({"size":40,"etag":"","ranges":[[-1,5]]})",
        R"({"size":40,"etag":"","ranges":[5]})", R"({"size":40,"etag":5,"ranges":[]})"}) {
    EXPECT_FALSE(ParsePartialState(bad, 40)) << bad;
  }
}

}  // namespace
}  // namespace rullama::downloads
