// The random numbers of block diffusion. The host draws them and passes them to the device, so that
// a run can be replayed on any device from a seed or from a recording.
//
// Thread safety: one thread per object.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"

namespace rullama {

class CanvasRandom {
 public:
  virtual ~CanvasRandom() = default;
  // The initial tokens of a canvas, uniform over [0, vocabulary). `first_position` is the position
  // of the canvas in the sequence. Error sampler.random: a recording has ended or does not fit.
  virtual Status Begin(int64_t first_position, int64_t vocabulary, std::span<int32_t> tokens) = 0;
  // The numbers of one step: for each row a uniform in [0, 1), then for each row the token that
  // replaces it if it is not accepted.
  virtual Status Draw(std::span<float> uniforms, std::span<int32_t> tokens) = 0;
};

// Counter-based (docs/numerics.md): a number depends only on the seed, position, step, use, and
// which of several answers to one prompt it is for.
class PhiloxCanvasRandom final : public CanvasRandom {
 public:
  explicit PhiloxCanvasRandom(uint64_t seed, uint32_t answer = 0) : seed_(seed), answer_(answer) {}
  Status Begin(int64_t first_position, int64_t vocabulary, std::span<int32_t> tokens) override;
  Status Draw(std::span<float> uniforms, std::span<int32_t> tokens) override;

 private:
  [[nodiscard]] float Uniform(size_t row, uint32_t stream) const;

  uint64_t seed_;
  uint32_t answer_;
  int64_t first_position_ = 0;
  int64_t vocabulary_ = 1;
  uint32_t step_ = 0;
};

// Marsaglia's xorshift64 with shifts 13, 7, 17 in draw order, the generator of the published
// DiffusionGemma runs. The seed is the initial state; 0 is refused (sampler.seed), since the state
// would stay 0.
class XorShiftCanvasRandom final : public CanvasRandom {
 public:
  static Result<XorShiftCanvasRandom> Create(uint64_t seed);
  Status Begin(int64_t first_position, int64_t vocabulary, std::span<int32_t> tokens) override;
  Status Draw(std::span<float> uniforms, std::span<int32_t> tokens) override;

  [[nodiscard]] uint64_t state() const { return state_; }

 private:
  explicit XorShiftCanvasRandom(uint64_t seed) : state_(seed) {}
  float NextUniform();
  int32_t NextToken();

  uint64_t state_;
  int64_t vocabulary_ = 1;
};

// Replays recorded numbers.
struct CanvasRecording {
  struct Step {
    std::vector<float> uniforms;
    std::vector<int32_t> tokens;
  };
  std::vector<int32_t> initial;
  std::vector<Step> steps;
};

class RecordedCanvasRandom final : public CanvasRandom {
 public:
  explicit RecordedCanvasRandom(CanvasRecording recording) : recording_(std::move(recording)) {}
  Status Begin(int64_t first_position, int64_t vocabulary, std::span<int32_t> tokens) override;
  Status Draw(std::span<float> uniforms, std::span<int32_t> tokens) override;

 private:
  CanvasRecording recording_;
  size_t step_ = 0;
};

// The generator that a configuration names, for one of several answers to one prompt. With xorshift
// the answers have the seeds that follow `seed`. Error sampler.seed: it does not take this seed.
Result<std::unique_ptr<CanvasRandom>> MakeCanvasRandom(DiffusionRandom kind, uint64_t seed,
                                                       uint32_t answer);

}  // namespace rullama
