#include "models/gemma3/graph/head_norms.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/check.h"
#include "models/common/graph/decoder_parts.h"

namespace rullama {
namespace {

// What keys of a pair of dimensions are multiplied by and queries divided by. 0: the pair adds
// nothing to a score.
double FactorOf(double q0, double q1, double k0, double k1) {
  const double of_queries = q0 * q0 + q1 * q1;
  const double of_keys = k0 * k0 + k1 * k1;
  const double factor = std::pow(of_queries / of_keys, 0.25);
  if (of_queries == 0 || of_keys == 0) return 0;
  return std::isfinite(factor) ? factor : 1;
}

Result<std::vector<float>> ReadVector(const ModelWeights& weights, const GgufFile& file,
                                      const std::string& name) {
  const WeightBinding* binding = weights.Find(name);
  RL_CHECK(binding != nullptr && binding->dtype == DType::kF32);
  const TensorInfo* tensor = file.FindTensor(binding->tensor);
  RL_CHECK(tensor != nullptr);
  RL_ASSIGN_OR_RETURN(const auto bytes, file.Load(*tensor));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

HeadNorms Balanced(const HeadNorms& norms) {
  RL_CHECK(norms.queries.size() == norms.keys.size() && norms.keys.size() % 2 == 0);
  HeadNorms balanced = norms;
  const size_t half = norms.keys.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const double factor =
        FactorOf(norms.queries[i], norms.queries[i + half], norms.keys[i], norms.keys[i + half]);
    for (const size_t dim : {i, i + half}) {
      const double query = factor == 0 ? 0 : norms.queries[dim] / factor;
      balanced.queries[dim] = static_cast<float>(query);
      balanced.keys[dim] = static_cast<float>(norms.keys[dim] * factor);
    }
  }
  return balanced;
}

Result<std::vector<HeadNorms>> ReadBalancedNorms(const Gemma3Config& config,
                                                 const ModelWeights& weights,
                                                 const GgufFile& file) {
  std::vector<HeadNorms> all;
  for (int64_t layer = 0; layer < config.layers && !config.encodes; ++layer) {
    HeadNorms norms;
    RL_ASSIGN_OR_RETURN(norms.queries,
                        ReadVector(weights, file, LayerName(layer, "attn_q_norm.weight")));
    RL_ASSIGN_OR_RETURN(norms.keys,
                        ReadVector(weights, file, LayerName(layer, "attn_k_norm.weight")));
    all.push_back(Balanced(norms));
  }
  return all;
}

}  // namespace rullama
