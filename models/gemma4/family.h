// Gemma 4 and DiffusionGemma as a row of the registry.
#pragma once

#include "models/common/family.h"

namespace rullama {

extern const ModelFamily kGemma4Family;

}  // namespace rullama
