// The steps of the sampler chain that edit logits before the draw. The file of a step holds
// all of it: which rows it concerns, its ops, and the inputs with its settings. Internal to
// samplers.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/status.h"
#include "core/ir/builder.h"
#include "samplers/input_bytes.h"
#include "samplers/row_chain.h"
#include "samplers/row_sampling.h"

namespace rullama::samplers {

struct StepContext {
  GraphBuilder& builder;
  SamplerInputs inputs;  // q_pos and q_slot are those of the wanted rows
  int64_t vocabulary;
  ValueId history;  // the state kSamplerHistory before this step's tokens

  // An input of R rows.
  ValueId Input(std::string_view name, DType dtype, int64_t columns) const {
    return builder.Input(name, {dtype, {Dim::R(), columns}});
  }
};

struct Step {
  // True if the step changes the logits of a row with these settings. It leaves those of any other
  // row as they are, bit by bit.
  bool (*changes)(const RowSampling& row);
  // The error (kUsage) of settings that the step cannot take. Null: it takes all.
  Status (*check)(const RowSampling& row, int64_t vocabulary);
  // Appends the ops of the step after `logits`, f32[R, vocabulary]; returns the edited logits.
  ValueId (*append)(const StepContext& context, ValueId logits);
  // Adds the inputs of the step for the wanted rows, which `check` has passed.
  void (*fill)(std::span<const RowSampling> rows, int64_t vocabulary, InputBytes& inputs);
};

#define RL_SAMPLER_STEP(Name, name) extern const Step k##Name;
#include "core/config/sampler_settings.def"

// All steps in their order.
inline constexpr const Step* kSteps[] = {
#define RL_SAMPLER_STEP(Name, name) &k##Name,
#include "core/config/sampler_settings.def"
};

}  // namespace rullama::samplers
