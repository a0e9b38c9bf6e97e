#include "cli/reports/graph_page.h"

#include <fmt/format.h>

#include "cli/reports/page.h"

namespace rullama::cli {

Result<std::string> GraphPage(const std::string& title, const std::vector<DrawnPart>& parts,
                              const std::vector<std::string>& device_names) {
  Page page(title);
  DrawingOptions options;
  options.device_names = device_names;
  options.title = "All ops outside of blocks, and a box for each block";
  RL_ASSIGN_OR_RETURN(const drawing::Picture folded, DrawGraph(parts, options));
  page.Drawing(drawing::InlineSvg(folded, /*sized=*/true));
  page.Section("Blocks");
  for (const BlockSize& size : BlocksOf(parts)) {
    options.only = size.block;
    options.title = fmt::format("Block {}", size.block);
    RL_ASSIGN_OR_RETURN(const drawing::Picture picture, DrawGraph(parts, options));
    page.Drawing(drawing::InlineSvg(picture, /*sized=*/true),
                 fmt::format("Block {}: {} ops", size.block, size.ops));
  }
  return page.ToHtml();
}

}  // namespace rullama::cli
