#include "media/resampler.h"

#include <soxr.h>

#include <array>

namespace rullama::media_internal {
namespace {

tl::unexpected<Error> SoxrError(soxr_error_t why) {
  return MakeError(ErrorKind::kOutOfMemory, "media.memory",
                   "the sound cannot be resampled ({}); use a shorter file", why);
}

}  // namespace

void Resampler::Delete::operator()(void* soxr) const { soxr_delete(static_cast<soxr_t>(soxr)); }

Result<Resampler> Resampler::Create(double from, double to) {
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_VHQ, 0);
  const soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);  // one thread
  soxr_error_t why = nullptr;
  soxr_t soxr = soxr_create(from, to, 1, &why, &io, &quality, &runtime);
  if (soxr == nullptr) return SoxrError(why != nullptr ? why : "no memory");
  return Resampler(soxr);
}

Status Resampler::Process(std::span<const float> in, std::vector<float>& out) {
  return in.empty() ? OkStatus() : Step(in.data(), in.size(), out);
}

Status Resampler::Finish(std::vector<float>& out) { return Step(nullptr, 0, out); }

Status Resampler::Step(const float* in, size_t samples, std::vector<float>& out) {
  std::array<float, 4096> block;
  size_t written = block.size();
  while (samples > 0 || written == block.size()) {
    size_t read = 0;
    const soxr_error_t why = soxr_process(static_cast<soxr_t>(soxr_.get()), in, samples, &read,
                                          block.data(), block.size(), &written);
    if (why != nullptr) return SoxrError(why);
    out.insert(out.end(), block.data(), block.data() + written);
    if (in == nullptr) continue;
    in += read;
    samples -= read;
    if (samples == 0) break;
  }
  return OkStatus();
}

}  // namespace rullama::media_internal
