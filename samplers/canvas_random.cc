#include "samplers/canvas_random.h"

#include <rullama/sdk/philox.h>

#include <algorithm>

namespace rullama {
namespace {

// Maps u in [0, 1) to a token. The remainder handles a float product that rounds up to
// `vocabulary`.
int32_t TokenOf(float u, int64_t vocabulary) {
  const auto token = static_cast<uint32_t>(u * static_cast<float>(vocabulary));
  return static_cast<int32_t>(token % static_cast<uint32_t>(vocabulary));
}

}  // namespace

// ---- Philox -------------------------------------------------------------------------------------

float PhiloxCanvasRandom::Uniform(size_t row, uint32_t stream) const {
  const auto position = static_cast<uint32_t>(first_position_ + static_cast<int64_t>(row));
  return PhiloxUniform(seed_, position, answer_, stream);
}

// Stream 0 has the initial canvas; step s has stream 2 s + 1 for uniforms and 2 s + 2 for tokens.
Status PhiloxCanvasRandom::Begin(int64_t first_position, int64_t vocabulary,
                                 std::span<int32_t> tokens) {
  first_position_ = first_position;
  vocabulary_ = vocabulary;
  step_ = 0;
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = TokenOf(Uniform(i, 0), vocabulary_);
  return OkStatus();
}

Status PhiloxCanvasRandom::Draw(std::span<float> uniforms, std::span<int32_t> tokens) {
  for (size_t i = 0; i < uniforms.size(); ++i) uniforms[i] = Uniform(i, 2 * step_ + 1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = TokenOf(Uniform(i, 2 * step_ + 2), vocabulary_);
  }
  ++step_;
  return OkStatus();
}

// ---- xorshift -----------------------------------------------------------------------------------

Result<XorShiftCanvasRandom> XorShiftCanvasRandom::Create(uint64_t seed) {
  if (seed == 0) {
    return MakeError(ErrorKind::kUsage, "sampler.seed",
                     "the xorshift generator cannot be seeded with 0; choose another seed");
  }
  return XorShiftCanvasRandom(seed);
}

float XorShiftCanvasRandom::NextUniform() {
  constexpr int kMantissaBits = 24;
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return static_cast<float>(state_ >> (64 - kMantissaBits)) * 0x1p-24F;
}

int32_t XorShiftCanvasRandom::NextToken() { return TokenOf(NextUniform(), vocabulary_); }

Status XorShiftCanvasRandom::Begin(int64_t /*first_position*/, int64_t vocabulary,
                                   std::span<int32_t> tokens) {
  vocabulary_ = vocabulary;
  std::ranges::generate(tokens, [this] { return NextToken(); });
  return OkStatus();
}

Status XorShiftCanvasRandom::Draw(std::span<float> uniforms, std::span<int32_t> tokens) {
  std::ranges::generate(uniforms, [this] { return NextUniform(); });
  std::ranges::generate(tokens, [this] { return NextToken(); });
  return OkStatus();
}

// ---- recordings ---------------------------------------------------------------------------------

Status RecordedCanvasRandom::Begin(int64_t /*first_position*/, int64_t vocabulary,
                                   std::span<int32_t> tokens) {
  if (recording_.initial.size() != tokens.size()) {
    return MakeError(ErrorKind::kUsage, "sampler.random",
                     "the recording begins with {} tokens, the canvas has {}",
                     recording_.initial.size(), tokens.size());
  }
  for (const int32_t token : recording_.initial) {
    if (token < 0 || token >= vocabulary) {
      return MakeError(ErrorKind::kUsage, "sampler.random",
                       "the recording has token {}, expected 0 to {}", token, vocabulary - 1);
    }
  }
  std::ranges::copy(recording_.initial, tokens.begin());
  step_ = 0;
  return OkStatus();
}

Status RecordedCanvasRandom::Draw(std::span<float> uniforms, std::span<int32_t> tokens) {
  if (step_ >= recording_.steps.size() ||
      recording_.steps[step_].uniforms.size() != uniforms.size() ||
      recording_.steps[step_].tokens.size() != tokens.size()) {
    return MakeError(ErrorKind::kUsage, "sampler.random",
                     "the recording has no numbers for step {} with {} rows", step_,
                     uniforms.size());
  }
  std::ranges::copy(recording_.steps[step_].uniforms, uniforms.begin());
  std::ranges::copy(recording_.steps[step_].tokens, tokens.begin());
  ++step_;
  return OkStatus();
}

Result<std::unique_ptr<CanvasRandom>> MakeCanvasRandom(DiffusionRandom kind, uint64_t seed,
                                                       uint32_t answer) {
  if (kind == DiffusionRandom::kPhilox) return std::make_unique<PhiloxCanvasRandom>(seed, answer);
  RL_ASSIGN_OR_RETURN(XorShiftCanvasRandom random, XorShiftCanvasRandom::Create(seed + answer));
  return std::make_unique<XorShiftCanvasRandom>(std::move(random));
}

}  // namespace rullama
