// Changes the rate of a signal that comes in blocks.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace rullama::media_internal {

class Resampler {
 public:
  // From `from` to `to` samples a second. Error media.memory.
  static Result<Resampler> Create(double from, double to);

  // Appends to `out` what can be computed once `in` is known. Error media.memory.
  [[nodiscard]] Status Process(std::span<const float> in, std::vector<float>& out);
  // Appends the rest: the signal has ended.
  [[nodiscard]] Status Finish(std::vector<float>& out);

 private:
  struct Delete {
    void operator()(void* soxr) const;
  };
  explicit Resampler(void* soxr) : soxr_(soxr) {}
  // Null and zero samples at the end of the signal.
  [[nodiscard]] Status Step(const float* in, size_t samples, std::vector<float>& out);

  std::unique_ptr<void, Delete> soxr_;  // soxr_t
};

}  // namespace rullama::media_internal
