#include "core/ir/ops_markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/ir/ops.h"

namespace rullama {
namespace {

using ::testing::HasSubstr;

TEST(OpsMarkdownTest, ThePageIsWhatTheTableSays) {
  const std::string path = RULLAMA_SOURCE_DIR "/docs/ops.md";
  const std::string page = OpsAsMarkdown();
  if (std::getenv("RULLAMA_UPDATE_DOCS") != nullptr) std::ofstream(path) << page;
  std::ostringstream found;
  found << std::ifstream(path).rdbuf();
  EXPECT_EQ(found.str(), page) << "docs/ops.md is out of date; run ir_test with "
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
