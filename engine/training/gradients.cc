#include "engine/training/gradients.h"

#include <span>
#include <utility>

#include "core/gguf/atomic_file.h"
#include "core/safetensors/safetensors.h"

namespace rullama {

Result<StepGradients> GradientsOfStep(TrainingSetup& setup, int64_t step) {
  StepGradients gradients;
  Trainer& trainer = setup.trainer();
  RL_ASSIGN_OR_RETURN(gradients.loss, trainer.AddGradients(setup.ExamplesOf(step)));
  gradients.parameters.reserve(2 * setup.pairs().size());
  const auto add = [&](const std::string& name, const TensorType& type) -> Status {
    RL_ASSIGN_OR_RETURN(std::vector<float> values, trainer.Read(GradientOf(name)));
    gradients.parameters.push_back(
        {name, {type.dim(0).constant, type.dim(1).constant}, std::move(values)});
    return OkStatus();
  };
  for (const LowRankPair& pair : setup.pairs()) {
    RL_RETURN_IF_ERROR(add(pair.a, pair.AType()));
    RL_RETURN_IF_ERROR(add(pair.b, pair.BType()));
  }
  return gradients;
}

Status WriteGradients(const StepGradients& gradients, const std::string& path) {
  std::vector<SafetensorsOutput> tensors;
  tensors.reserve(gradients.parameters.size());
  for (const ParameterGradient& gradient : gradients.parameters) {
    tensors.push_back({gradient.name, gradient.shape, gradient.values});
  }
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RL_RETURN_IF_ERROR(file.Append(EncodeSafetensors(std::move(tensors), {})));
  return file.Commit();
}

}  // namespace rullama
