// Gemma 3 as a row of the registry.
#pragma once

#include "models/common/family.h"

namespace rullama {

extern const ModelFamily kGemma3Family;

}  // namespace rullama
