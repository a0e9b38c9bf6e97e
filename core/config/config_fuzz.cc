// Any bytes as a configuration: an error with an id, or values that ToYaml prints so that they are
// read back unchanged.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/check.h"
#include "core/config/layered_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  rullama::LayeredConfig config;
  if (const auto status = config.ApplyYaml(text, "fuzz", "base"); !status) {
    RL_CHECK(status.error().id.starts_with("config."));
    RL_CHECK(!status.error().message.empty());
    return 0;
  }
  const std::string shown = config.ToYaml();
  rullama::LayeredConfig again;
  RL_CHECK(again.ApplyYaml(shown, "shown"));
  // The second text differs from the first only in origins: what was a default is YAML now.
  const std::string settled = again.ToYaml();
  rullama::LayeredConfig third;
  RL_CHECK(third.ApplyYaml(settled, "settled"));
  RL_CHECK(third.ToYaml() == settled);
  RL_CHECK(config.Finish().has_value() == again.Finish().has_value());
  return 0;
}
