#include "engine/scheduling/canvas_writer.h"

#include <utility>

#include "samplers/canvas_random.h"

namespace rullama {
namespace {

class ModelCanvasWriter final : public CanvasWriter {
 public:
  ModelCanvasWriter(Session& session, std::unique_ptr<CanvasRandom> random,
                    CanvasGeneratorOptions options)
      : random_(std::move(random)), generator_(session, *random_, std::move(options)) {}

  Result<CanvasGenerator::Progress> Advance(int64_t max_tokens) override {
    return generator_.Advance(max_tokens);
  }
  [[nodiscard]] std::span<const int32_t> canvas() const override { return generator_.canvas(); }
  [[nodiscard]] int64_t canvases() const override { return generator_.canvases(); }

 private:
  std::unique_ptr<CanvasRandom> random_;
  CanvasGenerator generator_;
};

}  // namespace

MakeCanvasWriter CanvasWritersOf(Session& session, const SchedulerOptions& options) {
  return [&session, &options](int32_t slot,
                              const Job& job) -> Result<std::unique_ptr<CanvasWriter>> {
    RL_ASSIGN_OR_RETURN(auto random, MakeCanvasRandom(options.canvas->random, job.sampling.seed,
                                                      job.sampling.stream));
    CanvasGeneratorOptions generator = options.canvas->generator;
    generator.slot = slot;
    generator.capacity = options.CapacityOf(job);
    return std::make_unique<ModelCanvasWriter>(session, std::move(random), std::move(generator));
  };
}

}  // namespace rullama
