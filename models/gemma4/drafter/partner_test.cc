#include "models/gemma4/drafter/partner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/gemma4/drafter/drafter_test_file.h"

namespace rullama::gemma4 {
namespace {

using ::testing::HasSubstr;

Gemma4Config Target() {
  const std::vector<std::byte> bytes = Gemma4TestFile::Small().Bytes();
  return *Gemma4Config::FromFile(*GgufFile::Parse(bytes));
}

DrafterConfig Drafter() {
  const std::vector<std::byte> bytes = SmallDrafter::In("gemma4-assistant").Bytes();
  return ReadDrafter(*GgufFile::Parse(bytes), AssistantOrigin::kNamed)->config;
}

// Layers 3 and 4 of the model share the caches of 1 and 2.
TEST(Partner, TheLastLayerOfAKindNamesTheCache) {
  EXPECT_EQ(CacheForDrafter(Target(), LayerKind::kSliding), 1);
  EXPECT_EQ(CacheForDrafter(Target(), LayerKind::kGlobal), 2);
}

TEST(Partner, ADrafterFitsItsModel) {
  EXPECT_TRUE(CheckPartner(Drafter(), Target()));
  DrafterConfig silent = Drafter();  // its file does not say how many heads the caches have
  silent.tells_kv_heads = false;
  silent.network.layers[0].kv_heads = 2;
  EXPECT_TRUE(CheckPartner(silent, Target()));
  DrafterConfig narrow = Drafter();
  narrow.network.sliding_window = 4;
  EXPECT_TRUE(CheckPartner(narrow, Target()));
}

struct Misfit {
  std::string id;
  std::string message;
  void (*change)(DrafterConfig& drafter, Gemma4Config& target);
};

const Misfit kMisfits[] = {
    {"draft.width", "width 1536 (E2B), this model has 32",
     [](DrafterConfig& d, Gemma4Config&) { d.target_width = 1536; }},
    {"draft.vocabulary", "the drafter has 21 tokens, the model 20",
     [](DrafterConfig& d, Gemma4Config&) { d.network.vocabulary = 21; }},
    {"draft.heads", "layer 1 of the drafter",
     [](DrafterConfig& d, Gemma4Config&) { d.network.layers[1].head_dim = 8; }},
    {"draft.heads", "for 2 key/value heads",
     [](DrafterConfig& d, Gemma4Config&) { d.network.layers[0].kv_heads = 2; }},
    {"draft.heads", "caches 2 heads",
     [](DrafterConfig& d, Gemma4Config& t) {
       d.network.heads = 3;
       d.tells_kv_heads = false;
       for (Gemma4Layer& layer : t.layers) layer.kv_heads = 2;
     }},
    {"draft.layers", "the model has none",
     [](DrafterConfig&, Gemma4Config& t) {
       for (Gemma4Layer& layer : t.layers) {
         layer.kind = LayerKind::kSliding;
         layer.head_dim = Gemma4TestFile::kSlidingDim;
       }
     }},
    {"draft.window", "the drafter's window has 9 tokens, that of the model 8",
     [](DrafterConfig& d, Gemma4Config&) { d.network.sliding_window = 9; }},
    {"draft.target", "denoises", [](DrafterConfig&, Gemma4Config& t) { t.canvas.length = 16; }},
};

TEST(Partner, OtherModelsAreRefusedByWhatDiffers) {
  for (const Misfit& misfit : kMisfits) {
    DrafterConfig drafter = Drafter();
    Gemma4Config target = Target();
    misfit.change(drafter, target);
    const Status fits = CheckPartner(drafter, target);
    ASSERT_FALSE(fits) << misfit.id;
    EXPECT_EQ(fits.error().id, misfit.id);
    EXPECT_EQ(fits.error().kind, ErrorKind::kUsage);
    EXPECT_THAT(fits.error().message, HasSubstr(misfit.message));
  }
}

}  // namespace
}  // namespace rullama::gemma4
