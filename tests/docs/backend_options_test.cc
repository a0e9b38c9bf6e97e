// docs/backend-options.md has a table for each backend, which is what its plugin says of its
// options. RULLAMA_UPDATE_DOCS=1 writes the tables.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/host_table.h"
#include "core/plugin/registry.h"
#include "tests/docs/source_text.h"
#include "tests/gpu_backends.h"

namespace rullama {
namespace {

// Text of a cell: a bar would end it.
std::string Cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string TableOf(const std::vector<OptionDescription>& options) {
  std::string table = "| option | values | default | meaning |\n|---|---|---|---|\n";
  for (const OptionDescription& option : options) {
    table += "| `" + option.name + "` | " + Cell(option.values) + " | " + Cell(option.initial) +
             " | " + Cell(option.meaning) + " |\n";
  }
  return table;
}

// The place of the first table below a heading: where it begins, and how long it is.
struct Place {
  size_t begin = 0, size = 0;
};
Place FirstTable(const std::string& page, const std::string& heading) {
  const size_t section = page.find("\n## " + heading + "\n");
  if (section == std::string::npos) return {};
  const size_t begin = page.find("\n|", section) + 1;
  size_t end = begin;
  while (end < page.size() && page[end] == '|') end = page.find('\n', end) + 1;
  return {begin, end - begin};
}

class BackendOptions : public ::testing::TestWithParam<const char*> {
 protected:
  ~BackendOptions() override { registry_.Shutdown(); }

  std::shared_ptr<PluginHost> host_ = std::make_shared<PluginHost>(HostOptions{});
  Registry registry_{RegistryOptions::FromProcess(), host_};
};

TEST_P(BackendOptions, AreThoseOfThePage) {
  const auto plugin = registry_.Find(GetParam());
  ASSERT_TRUE(plugin) << plugin.error().ToString();
  const auto options = (*plugin)->ListOptions();
  ASSERT_TRUE(options) << options.error().ToString();
  ASSERT_GE(options->size(), 4U);
  const std::string table = TableOf(*options);

  const auto path = SourceDirectory() / "docs/backend-options.md";
  std::string page = ReadText(path);
  const Place place = FirstTable(page, GetParam());
  ASSERT_GT(place.size, 0U) << "no table below '## " << GetParam() << "'";
  if (std::getenv("RULLAMA_UPDATE_DOCS") != nullptr) {
    page.replace(place.begin, place.size, table);
    std::ofstream(path) << page;
    return;
  }
  EXPECT_EQ(page.substr(place.begin, place.size), table)
      << "docs/backend-options.md is out of date; run backend_options_test with "
         "RULLAMA_UPDATE_DOCS=1";
}

INSTANTIATE_TEST_SUITE_P(All, BackendOptions, ::testing::ValuesIn(BackendNames()), kBackendName);

}  // namespace
}  // namespace rullama
