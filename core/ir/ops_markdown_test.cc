#include "core/ir/ops_markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/ir/ops.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(OpsMarkdownTest, ThePageIsWhatTheTableSays) {
  const std::string path = RULLAMA_SOURCE_DIR "/docs/ops.md";
  const std::string page = OpsAsMarkdown();
  std::string found = ReadText(path);
  // The sections of the backends, which conformance compares.
  const std::string backends = found.substr(std::min(found.find("\n## Ops of "), found.size()));
  if (std::getenv("RULLAMA_UPDATE_DOCS") != nullptr) {
    found = page + backends;
    std::ofstream(path) << found;
  }
  EXPECT_FALSE(backends.empty());
  EXPECT_EQ(found, page + backends) << "docs/ops.md is out of date; run ir_test with "
                                       "RULLAMA_UPDATE_DOCS=1";
}

TEST(OpsMarkdownTest, HasEveryOpOnce) {
  const std::string page = OpsAsMarkdown();
  for (const OpInfo& info : AllOps()) {
    const std::string heading = "\n### " + std::string(info.name) + "\n";
    EXPECT_THAT(page, HasSubstr(heading));
    EXPECT_EQ(page.find(heading), page.rfind(heading)) << info.name;
  }
}

}  // namespace
}  // namespace rullama
