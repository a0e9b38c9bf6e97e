// Plans of products, without a device. Each line of testdata/products.txt is a case:
//   DEVICE TYPE[n,k] [gated] [mode=MODE] [used=N] T=ROWS [decisive=ROWS] [prologue] [bytes=0]
//   [half=PARTS] [beside=RESULTS] [tiles=ROWSxCOUNT] -> PLAN
// The names are those of ProductShape and ProductStep. RULLAMA_UPDATE_GOLDENS=1 writes the plans.
#include "backends/gpu/product_plan.h"

#include <gtest/gtest.h>
#include <rullama/sdk/dtype.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace rullama::gpu {
namespace {

constexpr const char* kPath = RULLAMA_SOURCE_DIR "/backends/gpu/testdata/products.txt";
constexpr std::string_view kArrow = " -> ";

// `gpu` has 132 multiprocessors, as an H200; others lack something of it, or add to it.
Target TargetOf(const std::string& device) {
  Target target;
  target.can.multiprocessors = 132;
  target.can.subgroups = true;
  target.can.subgroup_size = 32;
  target.can.shared_bytes = 49152;
  target.prefers.few_groups = 528;
  if (device == "gpu") return target;
  if (device == "bytes") {
    target.can.integer_dot = true;
  } else if (device == "matrices") {  // of several rows, in integers
    target.can.integer_dot = true;
    target.can.integer_matrix_rows = 8;
  } else if (device == "units") {
    target.can.matrix_units = target.can.integer_dot = true;
  } else if (device == "hopper") {  // warpgroups multiply with most types
    target.can.matrix_units = target.can.integer_dot = true;
    target.can.multiplies_by_warpgroups = [](DType type) { return IsBlockType(type); };
  } else if (device == "resident") {  // steps of one dispatch
    target.can.integer_dot = target.prefers.fixed_groups = true;
  } else if (device == "cpu") {
    target.can = {.is_cpu = true, .shared_bytes = 49152, .multiprocessors = 8};
    target.prefers.threads = 1;
    target.prefers.few_groups = 32;
  } else {
    ADD_FAILURE() << "unknown device " << device;
  }
  return target;
}

ProductMode ModeOf(const std::string& name) {
  constexpr std::array kModes = {
      std::pair{"dense", ProductMode::kDense}, std::pair{"shared", ProductMode::kShared},
      std::pair{"pairs", ProductMode::kPairs}, std::pair{"weighted", ProductMode::kWeighted},
      std::pair{"summed", ProductMode::kSummed}};
  const auto found =
      std::ranges::find(kModes, name, [](const auto& mode) { return std::string(mode.first); });
  EXPECT_NE(found, kModes.end()) << "unknown mode " << name;
  return found == kModes.end() ? ProductMode::kDense : found->second;
}

struct Case {
  Target target;
  ProductShape shape;
  ProductStep step;
};

DType TypeOf(const std::string& name) {
  for (uint32_t id = 0; id < 256; ++id) {
    if (FindDType(id) == nullptr) continue;
    const auto type = static_cast<DType>(id);
    if (NameOf(type) == name) return type;
  }
  ADD_FAILURE() << "unknown type " << name;
  return DType::kF32;
}

// q4_k[2048,1536]: the weights of 2048 results of 1536 terms.
void ParseWeight(const std::string& word, ProductShape& shape) {
  const size_t open = word.find('['), comma = word.find(',');
  ASSERT_NE(comma, std::string::npos) << word;
  shape.n = std::stoll(word.substr(open + 1));
  const std::array<int64_t, 2> dims = {shape.n, std::stoll(word.substr(comma + 1))};
  shape.weight = ShapeOf(TypeOf(word.substr(0, open)), dims);
}

void ParseWord(const std::string& word, Case& parsed) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const std::string text = equals == std::string::npos ? "1" : word.substr(equals + 1);
  ProductStep& step = parsed.step;
  if (word.find('[') != std::string::npos) {
    ParseWeight(word, parsed.shape);
  } else if (name == "gated") {
    parsed.shape.gated = true;
  } else if (name == "adapted") {
    parsed.shape.adapted = true;
  } else if (name == "mode") {
    parsed.shape.mode = ModeOf(text);
    step.may_take_bytes = false;
  } else if (name == "used") {
    parsed.shape.used = std::stoll(text);
  } else if (name == "T") {
    step.rows = step.decisive = std::stoll(text);
  } else if (name == "decisive") {
    step.decisive = std::stoll(text);
  } else if (name == "prologue") {
    step.has_prologue = true;
  } else if (name == "bytes") {
    step.may_take_bytes = text == "1";
  } else if (name == "half") {
    step.half_parts = static_cast<uint32_t>(std::stoul(text));
  } else if (name == "beside") {
    step.results_beside = std::stoull(text);
  } else if (name == "tiles") {
    step.experts.rows = static_cast<uint32_t>(std::stoul(text));
    step.experts.count = std::stoull(text.substr(text.find('x') + 1));
  } else {
    ADD_FAILURE() << "unknown word " << word;
  }
}

Case ParseCase(const std::string& line) {
  std::istringstream words(line);
  std::string device;
  words >> device;
  Case parsed{TargetOf(device), {}, {}};
  for (std::string word; words >> word;) ParseWord(word, parsed);
  return parsed;
}

TEST(ProductPlan, IsTheOneOfTheFile) {
  std::ifstream file(kPath);
  ASSERT_TRUE(file) << kPath << " cannot be read";
  std::string expected, actual;
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    expected += line + "\n";
    if (!line.empty() && !line.starts_with('#')) {
      line.resize(std::min(line.size(), line.find(kArrow)));
      const Case parsed = ParseCase(line);
      line += std::string(kArrow) + ToText(ChooseProduct(parsed.shape, parsed.step, parsed.target));
      ++cases;
    }
    actual += line + "\n";
  }
  EXPECT_GT(cases, 30);
  if (std::getenv("RULLAMA_UPDATE_GOLDENS") != nullptr) {
    std::ofstream(kPath) << actual;
    return;
  }
  EXPECT_EQ(actual, expected);
}

}  // namespace
}  // namespace rullama::gpu
