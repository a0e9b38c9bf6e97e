// Whatever the parser accepts, it prints and accepts again with the same text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/check.h"
#include "core/ir/dot.h"
#include "core/ir/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto graph = rullama::ParseText(text);
  if (!graph) return 0;
  const std::string printed = rullama::PrintText(*graph);
  const auto again = rullama::ParseText(printed);
  RL_CHECK(again.has_value());
  RL_CHECK(rullama::PrintText(*again) == printed);
  RL_CHECK(!rullama::PrintDot(*graph).empty());
  return 0;
}
