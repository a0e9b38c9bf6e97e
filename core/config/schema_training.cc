#include <limits>

#include "core/config/schema.h"

namespace rullama {
namespace {

constexpr int64_t kMaxAdapterRank = 4096;
constexpr int64_t kMaxSteps = int64_t{1} << 31;
constexpr int64_t kMaxExamples = 4096;  // of a batch
constexpr int64_t kMaxRowsOfStep = 65536;
constexpr double kMaxAlpha = 1e6;
constexpr double kMaxRate = 10;

}  // namespace

BlockSpec TrainingSchema() {
  return BlockBuilder<&Config::training>("training",
                                         "How `rullama finetune` trains an adapter (LoRA).")
      .Field("data", &TrainingConfig::data, FileCodec{},
             "Examples, one JSON object a line; or a folder with train.jsonl and, if there are "
             "any, valid.jsonl and test.jsonl.",
             "must come from the command line")
      .Field("output", &TrainingConfig::output, FileCodec{},
             "The folder for the adapter and its checkpoints.")
      .Field("rank", &TrainingConfig::rank, IntegerCodec{1, kMaxAdapterRank},
             "Rank of the adapter: rows of A and columns of B.")
      .Field("alpha", &TrainingConfig::alpha, RealCodec{1e-6, kMaxAlpha},
             "B (A x) counts alpha / rank.")
      .Field("rslora", &TrainingConfig::rslora, BoolCodec{},
             "B (A x) counts alpha / sqrt(rank) instead.")
      .Field("targets", &TrainingConfig::targets, ListCodec<NameCodec>{},
             "The weights that get an adapter: `attn`, `mlp`, `all`, or names of projections, as "
             "GGUF files (`attn_q`) or Hugging Face (`q_proj`) spell them.")
      .Field("num_layers", &TrainingConfig::num_layers, IntegerCodec{-1, 1024},
             "The last layers that get adapters; -1: all layers.")
      .Field("hf_prefix", &TrainingConfig::hf_prefix,
             ChoiceCodec<AdapterNames>{
                 {{"text", AdapterNames::kText}, {"multimodal", AdapterNames::kMultimodal}}},
             "The names in the file for PEFT: those of Gemma4ForCausalLM, or of "
             "Gemma4ForConditionalGeneration, where the text model is a part.")
      .Field("learning_rate", &TrainingConfig::learning_rate, RealCodec{0, kMaxRate},
             "Learning rate of AdamW after the warm-up.")
      .Field("min_learning_rate", &TrainingConfig::min_learning_rate, RealCodec{0, kMaxRate},
             "The learning rate that linear and cosine schedules fall towards.")
      .Field("schedule", &TrainingConfig::schedule,
             ChoiceCodec<LearningSchedule>{{{"constant", LearningSchedule::kConstant},
                                            {"linear", LearningSchedule::kLinear},
                                            {"cosine", LearningSchedule::kCosine}}},
             "How the learning rate falls after the warm-up.")
      .Field("warmup_steps", &TrainingConfig::warmup_steps, IntegerCodec{0, kMaxSteps},
             "Optimizer steps in which the learning rate rises.", "3 % of the steps")
      .Field("beta1", &TrainingConfig::beta1, RealCodec{0, 1},
             "Decay of AdamW's mean of the gradients.")
      .Field("beta2", &TrainingConfig::beta2, RealCodec{0, 1},
             "Decay of AdamW's mean of their squares.")
      .Field("epsilon", &TrainingConfig::epsilon, RealCodec{1e-12, 1},
             "What AdamW adds to the root of that mean.")
      .Field("weight_decay", &TrainingConfig::weight_decay, RealCodec{0, 1},
             "Decay of the adapter's values, times the learning rate.")
      .Field("max_grad_norm", &TrainingConfig::max_grad_norm, RealCodec{0, kMaxAlpha},
             "A gradient with a larger norm is scaled down to it; 0: never.")
      .Field("epochs", &TrainingConfig::epochs, IntegerCodec{1, kMaxSteps},
             "Passes over the examples.", "1, unless `iters` is given")
      .Field("iters", &TrainingConfig::iters, IntegerCodec{1, kMaxSteps},
             "Optimizer steps; instead of `epochs`.", "as many as the epochs have")
      .Field("batch_size", &TrainingConfig::batch_size, IntegerCodec{1, kMaxExamples},
             "Examples of a batch.")
      .Field("grad_accumulation_steps", &TrainingConfig::grad_accumulation_steps,
             IntegerCodec{1, kMaxExamples},
             "Batches of an optimizer step, whose loss is the mean over all their tokens.")
      .Field("max_seq_length", &TrainingConfig::max_seq_length, IntegerCodec{2, kMaxRowsOfStep},
             "Tokens of the longest example, and of a step of the device.")
      .Field("seed", &TrainingConfig::seed, IntegerCodec{0, std::numeric_limits<int64_t>::max()},
             "Decides the first values of the adapter and the order of the examples.")
      .Field("shuffle", &TrainingConfig::shuffle, BoolCodec{},
             "Whether each epoch has an order of its own.")
      .Field("train_on", &TrainingConfig::train_on,
             ChoiceCodec<TrainOn>{{{"assistant", TrainOn::kAssistant},
                                   {"last", TrainOn::kLast},
                                   {"all", TrainOn::kAll}}},
             "The tokens of a conversation to learn: the assistant's turns, the last of them, or "
             "every token after BOS.")
      .Field("raw", &TrainingConfig::raw, BoolCodec{},
             "Prompts and completions are texts, not turns of a conversation.")
      .Field("on_long", &TrainingConfig::on_long,
             ChoiceCodec<OnLongLine>{{{"cut", OnLongLine::kCut},
                                      {"drop", OnLongLine::kDrop},
                                      {"error", OnLongLine::kError}}},
             "What happens to an example that is too long; a plain text is split, not cut.")
      .Field("strict", &TrainingConfig::strict, BoolCodec{},
             "An example without a token to learn is an error, not skipped.")
      .Field("val_split", &TrainingConfig::val_split, RealCodec{0, 0.9},
             "Part of the examples, the last ones, that is kept for validation.")
      .Field("chat_key", &TrainingConfig::chat_key, NameCodec{},
             "The member of a line that is a conversation.")
      .Field("prompt_key", &TrainingConfig::prompt_key, NameCodec{},
             "The member of a line that is a prompt.")
      .Field("completion_key", &TrainingConfig::completion_key, NameCodec{},
             "The member of a line that answers the prompt.")
      .Field("text_key", &TrainingConfig::text_key, NameCodec{},
             "The member of a line that is a plain text.")
      .Field("steps_per_report", &TrainingConfig::steps_per_report, IntegerCodec{1, kMaxSteps},
             "Optimizer steps between two lines about the loss.")
      .Field("steps_per_eval", &TrainingConfig::steps_per_eval, IntegerCodec{1, kMaxSteps},
             "Optimizer steps between two validations.")
      .Field("val_batches", &TrainingConfig::val_batches, IntegerCodec{-1, kMaxSteps},
             "Batches of the validation set that are measured, from its beginning; -1: all, 0: no "
             "validation.")
      .Field("test_batches", &TrainingConfig::test_batches, IntegerCodec{-1, kMaxSteps},
             "The same for the test set.")
      .Field("save_every", &TrainingConfig::save_every, IntegerCodec{1, kMaxSteps},
             "Optimizer steps between two checkpoints.")
      .Field("grad_checkpoint", &TrainingConfig::grad_checkpoint, AutoCodec<BoolCodec>{},
             "Compute the activations of a layer again in its backward pass instead of keeping "
             "them; `auto` does so for as few layers as let the activations fit in the device's "
             "memory, on a GPU in as much of it as the weights take.")
      .Build();
}

}  // namespace rullama
