// Any bytes give an importance matrix of the older form or an error.
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "models/quantize/importance.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = rullama::Importance::ParseOld(std::as_bytes(std::span(data, size)));
  if (parsed) {
    RL_CHECK(parsed->size() > 0);
  } else {
    RL_CHECK(parsed.error().id == "imatrix.file" && !parsed.error().message.empty());
  }
  return 0;
}
