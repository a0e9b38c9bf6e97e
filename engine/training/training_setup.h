// The parts of a training run: examples, the weights that get adapters, and a trainer on the
// devices of a configuration.
//
// Ownership: borrows model, configuration, hooks and notices, which outlive it. Thread safety: one
// thread. Errors: train.option (kUsage), train.model (kModelFile: the model does not predict
// tokens), those of ParseDataSet, OpenDevices and Trainer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/safetensors/safetensors.h"
#include "engine/host_hooks.h"
#include "engine/loading/backend_setup.h"
#include "engine/loading/loaded_model.h"
#include "engine/training/data_set.h"
#include "engine/training/example_order.h"
#include "engine/training/new_adapter.h"
#include "engine/training/trainer.h"

namespace rullama {

using ExampleRefs = std::vector<const Example*>;

class TrainingSetup {
 public:
  // `config` may name another backend than that of the model.
  TrainingSetup(const LoadedModel& model, const Config& config, const HostHooks& host,
                Notices& notices);
  ~TrainingSetup();
  TrainingSetup(const TrainingSetup&) = delete;
  TrainingSetup& operator=(const TrainingSetup&) = delete;

  // Checks the settings, reads the examples and chooses the weights. Opens no device.
  Status Read();
  // Opens plugins and devices and makes the trainer, whose states are zero. `group`: of the
  // trainer; borrowed.
  Status OpenTrainer(const std::vector<std::string>& plugin_paths, TrainingGroup* group = nullptr);

  // Sets A of every weight to what a new adapter begins with. `with_b`: B as well, which is zero
  // otherwise and then makes all gradients of A zero.
  Status DrawAdapter(bool with_b);
  // Sets A and B to those of a file, which has the same weights, ranks and factors: an adapter, or
  // safetensors of the halves alone (blk.N.NAME.weight.lora_a [rank, inputs], .lora_b [outputs,
  // rank]), whose factor is that of the settings. Error train.resume.
  Status ReadAdapter(const std::string& path);
  // The adapter as it is now.
  Result<Adapter> CurrentAdapter();

  // After Read().
  [[nodiscard]] const LoadedModel& model() const { return model_; }
  [[nodiscard]] const TrainingConfig& config() const { return config_.training; }
  [[nodiscard]] int64_t steps() const { return steps_; }
  [[nodiscard]] int64_t examples_of_step() const {
    return config().batch_size * config().grad_accumulation_steps;
  }
  // The examples of optimizer step `step`, counted from 0.
  [[nodiscard]] ExampleRefs ExamplesOf(int64_t step);
  [[nodiscard]] const std::vector<Example>& validation() const { return validation_; }
  [[nodiscard]] const std::vector<Example>& test() const { return test_; }
  [[nodiscard]] const std::string& data_hash() const { return data_hash_; }
  [[nodiscard]] const std::vector<LowRankPair>& pairs() const { return pairs_; }
  // After OpenTrainer().
  [[nodiscard]] Trainer& trainer() { return *trainer_; }
  [[nodiscard]] const std::string& backend() const { return devices_.backend; }

 private:
  [[nodiscard]] Status CheckSettings() const;
  // The examples of a file and a hash of its bytes.
  struct LoadedData {
    std::vector<Example> examples;
    std::string hash;
  };
  Result<LoadedData> LoadFile(const std::filesystem::path& path);
  Status LoadData();
  void SplitValidation();
  Status ChooseAdapter();
  // Sets A and B to the tensors of `file`, which `path` names in errors.
  Status WritePairs(const SafetensorsFile& file, const std::string& path);
  [[nodiscard]] Extents MaxExtents() const;
  [[nodiscard]] TrainerOptions OptionsOfTrainer() const;
  Status CreateTrainer(TrainerOptions& options);
  Result<MemoryNeed> CreateTrainer(TrainerOptions& options, int64_t layers);

  const LoadedModel& model_;
  const Config& config_;
  HostHooks host_;
  Notices& notices_;
  std::vector<Example> train_;
  std::vector<Example> validation_;
  std::vector<Example> test_;
  std::string data_hash_;  // of the file of train_
  std::unique_ptr<ExampleOrder> order_;
  int64_t steps_ = 0;
  std::vector<AdaptableWeight> weights_;
  std::vector<LowRankPair> pairs_;  // of the weights
  // Declared in the order they depend on each other.
  std::unique_ptr<Registry> registry_;
  BackendDevices devices_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace rullama
