#include "core/config/foreign_keys.h"

namespace rullama {
namespace {

struct ForeignKey {
  std::string_view key;
  std::string_view advice;
};

constexpr std::string_view kReports =
    "not supported: 'rullama finetune --json' reports each step, and loss.svg draws them";

constexpr ForeignKey kKeys[] = {
    {"train", "not needed: 'rullama finetune' trains, unless --test is given"},
    {"test", "use the option --test, which measures test.jsonl and trains nothing"},
    {"fine_tune_type", "not supported: adapters are plain LoRA"},
    {"optimizer", "not needed: the optimizer is AdamW; there is no other"},
    {"optimizer_config", "use training.beta1, beta2, epsilon and weight_decay"},
    {"adapter_path", "use training.output"},
    {"resume_adapter_file", "use the option --adapter-init FILE"},
    {"mask_prompt", "use training.train_on: assistant, which is the default, or all"},
    {"lora_parameters",
     "use training.rank, training.alpha, which is rank times scale, and training.targets for keys; "
     "there is no dropout"},
    {"lr_schedule", "use training.schedule, training.warmup_steps and training.min_learning_rate"},
    {"hf_dataset", "use training.data, a file of JSON lines or a folder of train.jsonl"},
    {"prompt_feature", "use training.prompt_key"},
    {"completion_feature", "use training.completion_key"},
    {"text_feature", "use training.text_key"},
    {"chat_feature", "use training.chat_key"},
    {"report_to", kReports},
    {"wandb", kReports},
    {"project_name", kReports},
};

}  // namespace

std::string_view AdviceOnKey(std::string_view key) {
  for (const ForeignKey& known : kKeys) {
    if (known.key == key) return known.advice;
  }
  return {};
}

}  // namespace rullama
