// The facts that a reader of bodies needs in addition to the body as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/api/request.h"

namespace rullama::server {

struct BodyContext {
  std::string_view text;  // the body as it came: nlohmann::json does not keep the order of members
  int64_t slots = 1;
  int64_t capacity = 0;                      // tokens of a slot
  bool denoises = false;                     // the model writes canvases
  int64_t adapters = 0;                      // that are loaded
  bool chooses_adapters = false;             // requests may choose among them
  std::optional<AdapterScale> adapter = {};  // of the name that the body has for the model
  // Of requests that choose none (Engine::SetAdapterScales), without those whose factor is 0.
  std::vector<AdapterScale> adapters_in_force = {};
};

}  // namespace rullama::server
