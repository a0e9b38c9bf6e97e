#include "cli/commands/foreign_words.h"

#include <algorithm>
#include <span>

namespace rullama::cli {
namespace {

struct ForeignWord {
  std::string_view names;   // separated by spaces: "-ngl --n-gpu-layers"
  std::string_view advice;  // "use ...", "not needed: <reason>" or "not supported: <reason>"
};

constexpr ForeignWord kOptions[] = {
    // Options for the devices.
    {"--rpc", "not supported: all devices are those of this machine"},
    {"--list-devices", "use the command: rullama backends"},
    {"-ot --override-tensor",
     "use placement.host_weights in a file for --config, or --n-cpu-moe N for experts"},
    {"-tb --threads-batch", "use -t N: the same threads read the prompt and answer"},
    {"--numa --cpu-mask -C --cpu-strict --prio",
     "not supported: the system places threads; taskset or numactl can confine them"},
    {"--mlock", "not supported: the system decides which pages of the model stay in memory"},
    {"--no-mmap --mmap", "not supported: model files are always mapped"},
    {"--no-warmup --warmup", "use --warm-up off or dispatch"},
    {"-ub --ubatch-size --batch-size", "use -b N: prompt tokens per step"},
    {"-np --parallel", "use 'rullama serve --parallel N' for several answers at once"},
    {"-cb --cont-batching", "not needed: 'rullama serve' answers requests together"},
    // The choice of the model.
    {"-hff --hf-file", "use 'rullama pull -hf USER/REPO --file PATH', whose result -m takes"},
    {"-hft --hf-token", "set HF_TOKEN"},
    {"-mu --model-url", "not supported: use -hf USER/REPO, or -m with a file"},
    {"--adapter", "use --lora FILE, or --lora FILE:SCALE"},
    {"--draft-n", "use --draft-max N"},
    {"--draft-n-min", "use --draft-min N"},
    {"-ngld --gpu-layers-draft -devd --device-draft",
     "not supported: the draft model runs on the device of the model"},
    {"--lookup", "use --draft-lookup"},
    {"-mm", "use --mmproj FILE"},
    {"--mmproj-url", "use -hf USER/REPO, whose towers come along, or --mmproj FILE"},
    {"--image-min-tokens --image-max-tokens", "use --image-tokens N"},
    {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx",
     "not supported: positions are as the model file says"},
    {"--check-tensors", "use the command: rullama inspect FILE"},
    // The conversation.
    {"-if --interactive-first -ins --instruct",
     "not needed: without a prompt, rullama run chats on a terminal"},
    {"-no-cnv --no-conversation", "use --raw: continues the text without the chat template"},
    {"-st --single-turn", "not needed: -p answers one prompt and ends"},
    {"-mli --multiline-input", "use -f FILE or standard input for a prompt of several lines"},
    {"--jinja --no-jinja", "not needed: the chat templates of Gemma 3 and 4 are built in"},
    {"--chat-template --chat-template-file --template",
     "not supported: the chat templates of Gemma 3 and 4 are built in; --raw leaves them out"},
    {"--sys --sysf --system-prompt --system-prompt-file", "use --system TEXT"},
    {"--reasoning --reasoning-budget --reasoning-format --hidethinking",
     "use --think or --no-think"},
    {"--no-escape", "not needed: text is taken as it is, unless -e is given"},
    {"--keep --context-shift --no-context-shift",
     "not supported: what stays in a full context cannot be chosen"},
    {"--prompt-cache --session", "not supported: conversations are not saved"},
    {"-r --reverse-prompt", "use --stop TEXT"},
    {"--ignore-eos", "not supported: an answer ends where the model ends it"},
    {"--in-prefix --in-suffix --in-prefix-bos", "use --raw and write the markers into the prompt"},
    {"--no-display-prompt", "not needed: the prompt is not repeated"},
    {"-sp --special", "not supported: markers do not appear in answers"},
    // Sampling.
    {"--temperature", "use --temp N"},
    {"--samplers --sampling-seq --sampler-seq", "not supported: the order of samplers is fixed"},
    {"--mirostat --mirostat-lr --mirostat-ent --mirostat_tau --mirostat_eta --dry-multiplier "
     "--dry-base --xtc-probability --xtc-threshold --top-nsigma --dynatemp-range",
     "not supported; use --top-k, --top-p, --min-p or --typical"},
    {"--typical-p", "use --typical N"},
    {"--grammar --grammar-file", "not supported: an answer can be held to a --json-schema"},
    {"--format", "use --json-schema SCHEMA; '{\"type\": \"object\"}' allows any object"},
    {"--ctx --n-ctx --num-ctx --num_ctx", "use -c N, or --ctx-size N"},
    {"--num-predict --num_predict", "use -n N, or --predict N"},
    // The program.
    {"-co", "use --color"},
    {"--log-disable --log-file -lv --log-verbosity",
     "use RULLAMA_LOG=off in the environment; answers alone go to standard output"},
    {"--verbose-prompt", "use -v, and rullama tokenize for the tokens"},
    {"--host --port", "these are of 'rullama serve'"},
    {"--api-key", "use 'rullama serve --api-key-file FILE', or RULLAMA_API_KEY in its environment"},
    {"--keepalive --nowordwrap --insecure --simple-io",
     "not needed: the program ends after the answer and writes plain text"},
};

// Options for which `finetune` has other advice than the other commands, and words of trainers.
constexpr ForeignWord kTrainingOptions[] = {
    {"-f --file -p --prompt",
     "use --data FILE, of JSON lines: {\"text\": \"...\"}, or prompts and completions, or "
     "messages"},
    {"-c --ctx-size --ctx --n-ctx --max_length --max-length",
     "use --max-seq-length N: tokens of the longest example"},
    {"-b -ub --ubatch-size --prefill-chunk -np --parallel --per_device_train_batch_size",
     "use --batch-size N: examples of a batch; --max-seq-length N bounds the tokens of a step"},
    {"-ctk --cache-type-k -ctv --cache-type-v",
     "not needed: keys and values are always f32 in training"},
    {"-opt --optimizer --optim", "not needed: the optimizer is AdamW; there is no other"},
    {"-decay-epochs --learning-rate-decay-epochs",
     "use --lr-schedule linear or cosine: the rate falls to --lr-min until the last step"},
    {"-n --predict --n-predict --temp --temperature --top-k --top-p --min-p --repeat-penalty",
     "not needed: training generates no text"},
    {"--lora-out", "use -o FOLDER, which gets adapter.gguf and the files for PEFT"},
    {"--lora-parameters --lora_r --lora_alpha --lora_dropout --lora-dropout --dropout",
     "use --rank R and --alpha A: the factor of the adapter is A / R; there is no dropout"},
    {"--fine-tune-type", "not supported: adapters are plain LoRA"},
    {"--train", "not needed: 'finetune' trains, unless --test is given"},
    {"--num_train_epochs", "use --epochs N"},
    {"--max_steps", "use --iters N"},
    {"--warmup_ratio --warmup_steps", "use --warmup N: steps in which the learning rate rises"},
    {"--lr_scheduler_type", "use --lr-schedule constant, linear or cosine"},
    {"--packing", "not needed: examples are packed, and none sees another"},
    {"--assistant_only_loss --completion_only_loss",
     "not needed: answers alone are learnt, unless --train-on says otherwise"},
    {"--resume_from_checkpoint", "use --resume FOLDER"},
    {"--gradient_checkpointing", "use --grad-checkpoint"},
};

constexpr ForeignWord kCommands[] = {
    {"push create cp stop signin signout",
     "models are downloaded and removed, and no more; use 'ollama' for that"},
    {"ps",
     "nothing runs in the background: a model is loaded for each run; 'rullama list' shows "
     "what there is"},
    {"server launch", "the server is 'rullama serve'"},
    {"chat generate completion cli", "use 'rullama run MODEL [PROMPT]'"},
    {"models", "use 'rullama list'"},
    {"devices", "use 'rullama backends'"},
    {"help", "use 'rullama --help', or 'rullama COMMAND --help'"},
    {"version", "use 'rullama --version'"},
    {"convert", "use the converter of llama.cpp, then 'rullama quantize'"},
    {"embedding embeddings", "use 'rullama embed', or POST /v1/embeddings of 'rullama serve'"},
};

// The advice for one name of a table; empty if the table does not have it.
std::string_view AdviceFor(std::span<const ForeignWord> table, std::string_view name) {
  for (const ForeignWord& word : table) {
    for (std::string_view rest = word.names; !rest.empty();) {
      const std::string_view candidate = rest.substr(0, rest.find(' '));
      if (candidate == name) return word.advice;
      rest.remove_prefix(std::min(candidate.size() + 1, rest.size()));
    }
  }
  return {};
}

}  // namespace

std::string_view AdviceOnOption(std::string_view command, std::string_view name) {
  const std::string_view special = command == "finetune" ? AdviceFor(kTrainingOptions, name) : "";
  return special.empty() ? AdviceFor(kOptions, name) : special;
}

std::string_view AdviceOnCommand(std::string_view name) { return AdviceFor(kCommands, name); }

}  // namespace rullama::cli
