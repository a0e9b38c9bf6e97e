// The configuration that the options of an engine mean. Pure function apart from reading the file.
#pragma once

#include "core/base/status.h"
#include "core/config/layered_config.h"
#include "engine/api/options.h"

namespace rullama {

// A finished configuration. Errors: config.*, io.*.
Result<LayeredConfig> ConfigOf(const EngineOptions& options);

}  // namespace rullama
