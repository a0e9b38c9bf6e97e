// The towers of the small multimodal models against goldens that an independent implementation
// computed: the soft tokens of media on every backend, and the values of each layer on the float64
// reference. The input is the golden's own, resampled pixels, so that no decoder plays a part.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/read_file_test_util.h"
#include "engine/media/media_encoder.h"
#include "models/gemma4/towers/towers.h"
#include "tests/golden/golden_support.h"
#include "tests/golden/session_support.h"

namespace rullama::golden {
namespace {

const std::filesystem::path kShared = RULLAMA_SOURCE_DIR "/../shared";
const std::filesystem::path kGoldens = kShared / "goldens/tiny-media";
constexpr int64_t kTextWidth = 256;

// Relative L2, from the README of the goldens.
constexpr double kF32Tolerance = 1e-5;
constexpr double kF32SoundTolerance = 2e-5;
// Products on matrix units round activations to f16, unless the option precise_products is on.
constexpr double kF16Tolerance = 1e-3;

// A file of towers, and what the goldens of its prefix say of one medium.
struct TowerCase {
  std::string prefix;
  std::string file;
};
const TowerCase kE2b = {"e2b", "tiny-e2b-mmproj-f16"};
const TowerCase kDense = {"dense", "tiny-dense-mmproj-f16"};
const TowerCase kUnified = {"unified", "tiny-unified-mmproj-f16"};
const TowerCase kOllama = {"ollama", "tiny-e2b-ollama-Q4_K_M"};

GgufFile OpenTowerFile(const TowerCase& tower) {
  return Must(GgufFile::Open(kShared / "models" / (tower.file + ".gguf")));
}

nlohmann::json MediumOf(const std::string& prefix, const std::string& name) {
  const nlohmann::json golden = ReadJson(kGoldens / (prefix + ".golden.json"));
  return Named(golden.at("media"), name);
}

// The resampled picture of a golden; some prefixes use the pixels of another.
Picture PixelsOf(const nlohmann::json& medium) {
  const std::string shared_name = fmt::format(
      "e2b.{}.{}.rgb.u8", medium.at("name").get<std::string>(), medium.at("budget").get<int>());
  const std::string bytes = ReadWholeFile(kGoldens / medium.value("rgb", shared_name));
  Picture picture{.width = medium.at("size")[0], .height = medium.at("size")[1], .rgb = {}};
  picture.rgb.assign(bytes.begin(), bytes.end());
  EXPECT_EQ(picture.rgb.size(), size_t{picture.width} * picture.height * 3);
  return picture;
}

// The towers of a file on one backend.
class OpenedTowers {
 public:
  OpenedTowers(const Backend& backend, const TowerCase& tower)
      : prefix_(tower.prefix),
        file_(OpenTowerFile(tower)),
        towers_(Must(gemma4::ReadTowers(file_, kTextWidth))) {
    registry_.RegisterBuiltIn("reference", ReferencePluginQuery);
    device_ = Must(Must(registry_.Find(backend.name))->Open(0, OptionsOf(backend)));
    encoder_.emplace(towers_, file_, std::vector<Device*>{device_.get()}, PlacementPolicy{});
  }

  void ExpectPicture(const std::string& name, double tolerance) {
    SCOPED_TRACE(prefix_ + " " + name);
    const nlohmann::json medium = MediumOf(prefix_, name);
    ExpectSoft(medium, Must(encoder_->Encode(PixelsOf(medium), medium.at("budget"))), tolerance);
  }
  // A sound whose samples the golden has.
  void ExpectSound(const std::string& name, double tolerance) {
    SCOPED_TRACE(prefix_ + " " + name);
    const nlohmann::json medium = MediumOf(prefix_, name);
    const auto samples = ReadFloats(kGoldens / medium.at("samples").get<std::string>());
    ExpectSoft(medium, Must(encoder_->Encode(samples)), tolerance);
  }

 private:
  void ExpectSoft(const nlohmann::json& medium, const SoftTokens& soft, double tolerance) const {
    EXPECT_EQ(soft.tokens, medium.at("tokens"));
    EXPECT_EQ(soft.width, kTextWidth);
    const auto expected = ReadFloats(kGoldens / medium.at("soft").get<std::string>());
    const double error = RelativeL2(std::span<const float>(soft.values), expected);
    std::printf("%s: relative L2 %.3g\n", medium.at("soft").get<std::string>().c_str(), error);
    EXPECT_LE(error, tolerance);
  }

  std::string prefix_;
  GgufFile file_;
  Towers towers_;
  std::shared_ptr<PluginHost> host_ = std::make_shared<PluginHost>(HostOptions{});
  Registry registry_{RegistryOptions::FromProcess(), host_};
  std::unique_ptr<Device> device_;
  std::optional<MediaEncoder> encoder_;
};

TEST(GoldenMedia, SoundOnTheCpu) {
  OpenedTowers({"cpu", ""}, kE2b).ExpectSound("mix-44k-stereo", kF32SoundTolerance);
  OpenedTowers({"cpu", ""}, kOllama).ExpectSound("mix-44k-stereo", kF32SoundTolerance);
}

TEST(GoldenMedia, PicturesOnTheCpu) {
  OpenedTowers e2b({"cpu", ""}, kE2b);
  for (const char* name : {"tiny-rgba", "rotated-exif6", "strip-grey", "wide-palette"}) {
    e2b.ExpectPicture(name, kF32Tolerance);
  }
  OpenedTowers dense({"cpu", ""}, kDense);
  dense.ExpectPicture("tiny-rgba", kF32Tolerance);
  dense.ExpectPicture("wide-palette", kF32Tolerance);
  OpenedTowers unified({"cpu", ""}, kUnified);
  unified.ExpectPicture("rotated-exif6", kF32Tolerance);
  unified.ExpectPicture("wide-palette", kF32Tolerance);
  OpenedTowers({"cpu", ""}, kOllama).ExpectPicture("tiny-rgba", kF32Tolerance);
}

// Software drivers and the reference are slow: one picture of each kind of tower.
void ExpectEachKind(const Backend& backend, double tolerance) {
  OpenedTowers(backend, kE2b).ExpectPicture("wide-palette", tolerance);
  OpenedTowers(backend, kDense).ExpectPicture("wide-palette", tolerance);
  OpenedTowers(backend, kUnified).ExpectPicture("rotated-exif6", tolerance);
}

TEST(GoldenMedia, PicturesOnTheReference) { ExpectEachKind({"reference", ""}, 2e-6); }

class GoldenMediaOnGpus : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, GoldenMediaOnGpus, ::testing::ValuesIn(GpuBackendNames()), kBackendName);

TEST_P(GoldenMediaOnGpus, Pictures) {
  ExpectEachKind(Precise({{GetParam(), ""}}).front(), kF32Tolerance);
}

// Only devices with matrix units round here.
TEST_P(GoldenMediaOnGpus, RoundedPictures) {
  for (const TowerCase& tower : {kE2b, kDense}) {
    OpenedTowers({GetParam(), ""}, tower).ExpectPicture("wide-palette", kF16Tolerance);
  }
}

}  // namespace
}  // namespace rullama::golden
