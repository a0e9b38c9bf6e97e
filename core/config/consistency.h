// Checks of values against each other, which no single key can make.
#pragma once

#include "core/base/status.h"
#include "core/config/config.h"

namespace rullama {

// Error: config.conflict (kUsage), naming the keys and what they would have to be. Only values that
// are given are compared.
Status CheckConsistency(const Config& config);

// Whether `architecture` says enough to build a model (`rullama synth`).
// Error: config.missing_key (kUsage), naming every key that is missing.
Status CheckArchitectureComplete(const ArchitectureConfig& architecture);

// The same of its towers, of which there is at least one.
Status CheckTowersComplete(const ArchitectureConfig& architecture);

}  // namespace rullama
