#include "models/gemma4/drafter/drafter_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "models/gemma4/drafter/drafter_test_file.h"

namespace rullama::gemma4 {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Result<DrafterFile> ReadFrom(Gemma4TestFile& file,
                             AssistantOrigin origin = AssistantOrigin::kNamed) {
  const std::vector<std::byte> bytes = file.Bytes();
  const auto parsed = GgufFile::Parse(bytes);
  EXPECT_TRUE(parsed) << parsed.error().ToString();
  return ReadDrafter(*parsed, origin);
}

class Dialects : public ::testing::TestWithParam<std::string_view> {};

TEST_P(Dialects, GiveTheSameDrafter) {
  Gemma4TestFile file = SmallDrafter::In(GetParam());
  const auto drafter = ReadFrom(file);
  ASSERT_TRUE(drafter) << drafter.error().ToString();
  const DrafterConfig& config = drafter->config;
  EXPECT_EQ(config.target_width, int64_t{Gemma4TestFile::kWidth});
  EXPECT_EQ(config.network.width, int64_t{SmallDrafter::kWidth});
  EXPECT_EQ(config.network.vocabulary, int64_t{Gemma4TestFile::kVocabulary});
  EXPECT_EQ(config.network.layer(0).kind, LayerKind::kSliding);
  EXPECT_EQ(config.network.layer(1).kind, LayerKind::kGlobal);
  EXPECT_EQ(config.network.final_softcap, 0);
  ASSERT_TRUE(config.ordered);
  EXPECT_EQ(config.ordered->clusters, int64_t{SmallDrafter::kClusters});
  EXPECT_EQ(config.ordered->chosen, 2);
  EXPECT_THAT(config.ordered->ordering, ElementsAreArray(SmallDrafter::Ordering()));
  for (const std::string_view name : {kPreProjection, kPostProjection, kCentroids}) {
    EXPECT_NE(drafter->weights.Find(name), nullptr) << name;
  }
  EXPECT_THAT(drafter->warnings, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, Dialects, ::testing::ValuesIn(kDrafterArchitectures),
                         [](const auto& instance) {
                           const bool hyphen = instance.param.find('-') != std::string_view::npos;
                           return hyphen ? "LlamaCpp" : std::string(instance.param);
                         });

TEST(DrafterFile, AHeadWithoutClustersComputesAllTokens) {
  Gemma4TestFile file = SmallDrafter::In("gemma4-assistant");
  const auto ordered = ReadFrom(file);
  file = SmallDrafter::In("gemma4-assistant");
  file.Remove("masked_embd_centroids.weight");
  file.Remove("masked_embd_ordering");
  const auto dense = ReadFrom(file);
  ASSERT_TRUE(ordered && dense);
  EXPECT_FALSE(dense->config.ordered);
  EXPECT_FALSE(dense->facts.has_ordered_head());
  // Three of five clusters are not read, and the centroids are.
  const uint64_t row = SmallDrafter::kWidth * sizeof(float);
  EXPECT_EQ(dense->facts.step_bytes - ordered->facts.step_bytes,
            3 * SmallDrafter::kClusterSize * row - SmallDrafter::kClusters * row);
}

TEST(DrafterFile, OrderingsMayHave64Bits) {
  Gemma4TestFile file = SmallDrafter::In("gemma4-assistant");
  file.Remove("masked_embd_ordering");
  const std::vector<int32_t> ids = SmallDrafter::Ordering();
  SmallDrafter::AddIds("masked_embd_ordering", std::vector<int64_t>(ids.begin(), ids.end()), file);
  const auto drafter = ReadFrom(file);
  ASSERT_TRUE(drafter) << drafter.error().ToString();
  EXPECT_THAT(drafter->config.ordered->ordering, ElementsAreArray(ids));
}

// A file and what is wrong with its clusters.
struct Damage {
  std::string name;
  std::string dialect;
  void (*spoil)(Gemma4TestFile& file);
};

void PutIds(Gemma4TestFile& file, const std::string& name, std::vector<int32_t> ids) {
  file.Remove(name);
  SmallDrafter::AddIds(name, ids, file);
}

const Damage kDamages[] = {
    {"NoOrdering", "gemma4-assistant", [](Gemma4TestFile& f) { f.Remove("masked_embd_ordering"); }},
    {"NoCentroids", "gemma4-assistant",
     [](Gemma4TestFile& f) { f.Remove("masked_embd_centroids.weight"); }},
    {"TwiceTheSame", "gemma4-assistant",
     [](Gemma4TestFile& f) {
       std::vector<int32_t> ids = SmallDrafter::Ordering();
       ids[3] = ids[4];
       PutIds(f, "masked_embd_ordering", ids);
     }},
    {"OutOfRange", "gemma4-assistant",
     [](Gemma4TestFile& f) {
       std::vector<int32_t> ids = SmallDrafter::Ordering();
       ids[7] = Gemma4TestFile::kVocabulary;
       PutIds(f, "masked_embd_ordering", ids);
     }},
    {"Negative", "gemma4-assistant",
     [](Gemma4TestFile& f) {
       std::vector<int32_t> ids = SmallDrafter::Ordering();
       ids[7] = -1;
       PutIds(f, "masked_embd_ordering", ids);
     }},
    {"TooShort", "gemma4-assistant",
     [](Gemma4TestFile& f) {
       PutIds(f, "masked_embd_ordering", {0, 1, 2});
     }},
    {"UnevenClusters", "gemma4_mtp",
     [](Gemma4TestFile& f) {
       std::vector<int32_t> clusters = SmallDrafter::Clusters();
       clusters[0] = 1;
       PutIds(f, "mtp_token_ordering.weight", clusters);
     }},
    {"NoSuchCluster", "gemma4_mtp",
     [](Gemma4TestFile& f) {
       std::vector<int32_t> clusters = SmallDrafter::Clusters();
       clusters[0] = SmallDrafter::kClusters;
       PutIds(f, "mtp_token_ordering.weight", clusters);
     }},
    {"NoneChosen", "gemma4-assistant",
     [](Gemma4TestFile& f) { f.writer.Set("gemma4-assistant.centroid_top_k", uint32_t{0}); }},
    {"TooManyChosen", "gemma4-assistant",
     [](Gemma4TestFile& f) { f.writer.Set("gemma4-assistant.centroid_top_k", uint32_t{6}); }},
};

class Damaged : public ::testing::TestWithParam<Damage> {};

// An ordering that is read wrongly would read outside the head.
TEST_P(Damaged, ClustersAreRefusedOrLeftOut) {
  Gemma4TestFile file = SmallDrafter::In(GetParam().dialect);
  GetParam().spoil(file);
  const auto named = ReadFrom(file);
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().id, "draft.ordering") << named.error().message;
  file = SmallDrafter::In(GetParam().dialect);
  GetParam().spoil(file);
  const auto found = ReadFrom(file, AssistantOrigin::kFound);
  ASSERT_TRUE(found) << found.error().ToString();
  EXPECT_FALSE(found->config.ordered);
  EXPECT_THAT(found->warnings, SizeIs(1));
}

INSTANTIATE_TEST_SUITE_P(All, Damaged, ::testing::ValuesIn(kDamages),
                         [](const auto& instance) { return instance.param.name; });

TEST(DrafterFile, MetadataAndTensorsAreChecked) {
  const auto error_of = [](auto spoil) {
    Gemma4TestFile file = SmallDrafter::In("gemma4-assistant");
    spoil(file);
    const auto drafter = ReadFrom(file);
    return drafter ? Error{} : drafter.error();
  };
  const auto without_width =
      error_of([](Gemma4TestFile& f) { f.writer.Remove("gemma4-assistant.embedding_length_out"); });
  EXPECT_EQ(without_width.id, "model.hparam");
  EXPECT_THAT(without_width.message, HasSubstr("embedding_length_out"));
  EXPECT_EQ(error_of([](Gemma4TestFile& f) {
              f.writer.Set("gemma4-assistant.embedding_length_out", uint32_t{0});
            }).id,
            "model.hparam");
  EXPECT_EQ(error_of([](Gemma4TestFile& f) {
              f.writer.Set("gemma4-assistant.embedding_length_out", uint32_t{64});
            }).id,
            "model.tensor_shape");
  EXPECT_EQ(error_of([](Gemma4TestFile& f) { f.Remove("nextn.post_projection.weight"); }).id,
            "model.missing_tensor");
  EXPECT_EQ(error_of([](Gemma4TestFile& f) {
              f.writer.Set("gemma4-assistant.block_count", uint32_t{3});
            }).id,
            "model.array_length");
}

}  // namespace
}  // namespace rullama::gemma4
