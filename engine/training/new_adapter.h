// The adapter that a run begins with. Pure functions. Errors (kUsage): train.option.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "core/passes/adapt.h"
#include "models/common/model.h"

namespace rullama {

// The weights that a configuration names: training.targets of the last training.num_layers layers.
Result<std::vector<AdaptableWeight>> ChooseWeights(const Model& model,
                                                   const TrainingConfig& config);

// The factor of B (A x): alpha / rank or, with training.rslora, alpha / sqrt(rank).
double AdapterFactor(const TrainingConfig& config);

// The pair of a weight, whose A and B are states.
Result<LowRankPair> PairOf(const AdaptableWeight& weight, const TrainingConfig& config);

// A [rank, inputs] of a new adapter: uniform in +-1 / sqrt(inputs), as PEFT has it. It depends on
// the seed and the weight alone; B is 0.
std::vector<float> DrawA(const AdaptableWeight& weight, int64_t rank, uint64_t seed);

// B [outputs, rank] of an adapter whose gradients are compared: uniform in +-0.03. A new adapter
// has zeros, with which every gradient of A is zero.
std::vector<float> DrawB(const AdaptableWeight& weight, int64_t rank, uint64_t seed);

}  // namespace rullama
