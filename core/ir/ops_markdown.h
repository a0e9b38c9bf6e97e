// The op page of the documentation, generated from ops.def.
#pragma once

#include <string>

namespace rullama {

std::string OpsAsMarkdown();

}  // namespace rullama
