// Fusion of graphs in text form, without a device. Each file of testdata/ holds a graph and, below
// lines "---- DEVICE [T=N] [observed=NAME]", the nodes it becomes there: for steps of at most N
// rows, and with a value that the host observes.
#include "backends/gpu/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/text.h"
#include "core/plugin/graph_flatten.h"

namespace rullama::gpu {
namespace {

constexpr std::string_view kSeparator = "---- ";

Target TargetOf(const std::string& device) {
  Target target;
  target.can.subgroups = true;
  target.can.subgroup_size = 32;
  target.can.integer_dot = true;
  target.can.starts_in_order = true;
  target.can.shared_bytes = 49152;
  target.prefers.max_prologue = 8192;
  if (device == "gpu") return target;
  if (device == "no_subgroups") {
    target.can.subgroups = false;
  } else if (device == "no_row_kernels") {
    target.can.row_attention = false;
  } else if (device == "no_int8_dot") {
    target.can.integer_dot = false;
  } else if (device == "any_order") {
    target.can.starts_in_order = false;
  } else if (device == "norms_by_bytes") {
    target.can.norms_by_bytes = true;
  } else if (device == "little_shared_memory") {
    // Enough for a row of 256 numbers, but not for the sums of an adapter beside it.
    target.can.shared_bytes = 4096;
  } else if (device == "short_prologue") {
    target.prefers.max_prologue = 128;
  } else if (device == "matrix_units") {
    target.can.matrix_units = target.can.half_norms = true;
  } else if (device == "matrix_units_without_norms") {
    target.can.matrix_units = true;
  } else if (device == "pieces_of_matrix_units") {
    target.can.matrix_units = target.can.half_norms = true;
    target.can.max_piece_bytes = 4096;
  } else if (device == "pieces") {
    target.can.max_piece_bytes = 4096;
  } else {
    ADD_FAILURE() << "unknown device " << device;
  }
  return target;
}

// The title in a line "---- ...".
struct Setting {
  std::string device;
  std::optional<int64_t> max_t;
  std::string observed;
};

Setting ParseSetting(const std::string& line) {
  std::istringstream words(line);
  Setting setting;
  words >> setting.device;
  for (std::string word; words >> word;) {
    const std::string value = word.substr(word.find('=') + 1);
    if (word.starts_with("T=")) {
      setting.max_t = std::stoll(value);
    } else if (word.starts_with("observed=")) {
      setting.observed = value;
    } else {
      ADD_FAILURE() << "unknown setting " << word;
    }
  }
  return setting;
}

std::string FuseAs(const Graph& graph, const Setting& setting) {
  const FlatGraph flat(graph);
  rl_graph raw = *flat.view();
  std::vector<rl_value> values(raw.values, raw.values + raw.value_count);
  if (!setting.observed.empty()) {
    const auto found = std::ranges::find_if(
        values, [&](const rl_value& value) { return sdk::View(value.name) == setting.observed; });
    EXPECT_NE(found, values.end()) << setting.observed;
    if (found != values.end()) found->observed = 1;
  }
  raw.values = values.data();
  raw.max_t = setting.max_t.value_or(raw.max_t);
  const sdk::GraphView view(raw);
  return PrintFused(view, Fuse(view, TargetOf(setting.device)));
}

class FuseTest : public testing::TestWithParam<const char*> {};

TEST_P(FuseTest, GivesTheExpectedNodes) {
  const std::string path =
      std::string(RULLAMA_SOURCE_DIR "/backends/gpu/testdata/") + GetParam() + ".txt";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " cannot be read";
  std::string text, expected;
  std::vector<std::string> settings;
  for (std::string line; std::getline(file, line);) {
    expected += line + "\n";
    if (line.starts_with(kSeparator)) settings.push_back(line.substr(kSeparator.size()));
    if (settings.empty()) text += line + "\n";
  }
  ASSERT_FALSE(settings.empty()) << path << " has no line '---- DEVICE'";
  const auto graph = ParseText(text);
  ASSERT_TRUE(graph.has_value()) << graph.error().ToString();
  std::string actual = text;
  for (const std::string& setting : settings) {
    actual += std::string(kSeparator) + setting + "\n" + FuseAs(*graph, ParseSetting(setting));
  }
  EXPECT_EQ(actual, expected);
}

INSTANTIATE_TEST_SUITE_P(Gpu, FuseTest,
                         testing::Values("adapters", "adapters_of_other_shapes", "layer", "router",
                                         "attention", "clamps", "norms", "norms_by_bytes", "learns",
                                         "low_rank", "low_rank_rows", "not_fused"),
                         [](const testing::TestParamInfo<const char*>& test) {
                           return std::string(test.param);
                         });

}  // namespace
}  // namespace rullama::gpu
