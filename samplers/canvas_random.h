// The random numbers of block diffusion. Randomness is an input of the device: the host draws it,
// so that a run can be replayed anywhere, from a seed or from a recording.
//
// Thread safety: one thread per object.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace rullama {

class CanvasRandom {
 public:
  virtual ~CanvasRandom() = default;
  // The tokens a canvas begins with, uniform over [0, vocabulary). `first_position`: of the canvas
  // in the sequence. Error sampler.random: a recording has ended or does not fit.
  virtual Status Begin(int64_t first_position, int64_t vocabulary, std::span<int32_t> tokens) = 0;
  // The numbers of one step: for each row a uniform in [0, 1), then for each row the token it
  // becomes if it is not accepted.
  virtual Status Draw(std::span<float> uniforms, std::span<int32_t> tokens) = 0;
};

// Counter-based (docs/numerics.md): a number depends on seed, position, step and use alone.
class PhiloxCanvasRandom final : public CanvasRandom {
 public:
  explicit PhiloxCanvasRandom(uint64_t seed) : seed_(seed) {}
  Status Begin(int64_t first_position, int64_t vocabulary, std::span<int32_t> tokens) override;
  Status Draw(std::span<float> uniforms, std::span<int32_t> tokens) override;

 private:
  [[nodiscard]] float Uniform(size_t row, uint32_t stream) const;

  uint64_t seed_;
  int64_t first_position_ = 0;
  int64_t vocabulary_ = 1;
  uint32_t step_ = 0;
};

// Marsaglia's xorshift64 with shifts 13, 7, 17, in draw order: what published DiffusionGemma runs
// were recorded with. The state is the seed; 0 would stay 0, which sampler.seed refuses.
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

// Numbers that somebody else drew.
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

}  // namespace rullama
