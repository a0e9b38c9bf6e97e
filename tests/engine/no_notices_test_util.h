// Notices for tests that open models and look at nothing that is said.
#pragma once

#include <string_view>

#include "engine/host_hooks.h"

namespace rullama {

class NoNotices : public Notices {
  void Note(std::string_view /*text*/) override {}
  void Warn(std::string_view /*text*/) override {}
};

}  // namespace rullama
