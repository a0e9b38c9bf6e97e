// rullama imatrix: which columns of a model's matrices matter, measured over a text, for
// `rullama quantize --imatrix` and llama-quantize.
//
// The text is cut into whole chunks of the context size, each read from an empty cache after a BOS
// token, as llama-imatrix does.
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/commands/command.h"
#include "cli/commands/loading.h"
#include "cli/commands/options.h"
#include "cli/commands/text_limits.h"
#include "cli/terminal/signals.h"
#include "core/passes/observe_products.h"
#include "core/runtime/session.h"
#include "core/runtime/weights.h"
#include "models/quantize/importance_sums.h"

namespace rullama::cli {
namespace {

struct ImatrixFlags {
  ConfigFlags config;
  std::string text;
  std::string output = "imatrix.gguf";
  std::optional<int64_t> chunks;
};

// The whole chunks of a text, at most as many as asked for.
Result<std::vector<std::vector<int32_t>>> ChunksOfFile(const ImatrixFlags& flags,
                                                       const LoadedModel& model) {
  RL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.text, kMaxTextBytes));
  RL_ASSIGN_OR_RETURN(const auto ids, model.tokenizer->Encode(text));
  const std::optional<TokenId> bos = model.tokenizer->bos_id();
  const auto size = static_cast<size_t>(model.capacity());
  const size_t room = size - (bos ? 1 : 0);
  std::vector<std::vector<int32_t>> chunks;
  for (size_t begin = 0; room > 0 && begin + room <= ids.size(); begin += room) {
    if (flags.chunks && std::ssize(chunks) == *flags.chunks) break;
    std::vector<int32_t>& chunk = chunks.emplace_back();
    if (bos) chunk.push_back(*bos);
    const auto part = std::span(ids).subspan(begin, room);
    chunk.insert(chunk.end(), part.begin(), part.end());
  }
  if (!chunks.empty()) return chunks;
  return MakeError(ErrorKind::kUsage, "imatrix.text",
                   "the text has {} tokens, expected at least the {} of a chunk (--ctx-size)",
                   ids.size(), room);
}

// The graph of a chunk with the activations of all matrices, and its constants.
Result<ObservedProducts> BuildGraph(const LoadedModel& model, GgufWeights& weights) {
  const ModelFacts& facts = model.facts();
  RL_ASSIGN_OR_RETURN(ModelGraph parts, model.model->BuildGraph({.capacity = model.capacity(),
                                                                 .kv_dtype = DType::kF32,
                                                                 .max_t = model.capacity(),
                                                                 .max_r = 1}));
  for (SyntheticConstant& constant : parts.constants) {
    weights.AddConstant(std::move(constant.name), constant.type, std::move(constant.bytes));
  }
  parts.builder.Output("hidden", parts.last_norm, RowDemand::kAll);
  RL_ASSIGN_OR_RETURN(const Graph graph, std::move(parts.builder).Finish());
  RL_ASSIGN_OR_RETURN(const Graph scaled,
                      WithScalesAndAdapters(graph, facts.weight_scales, /*pairs=*/{}));
  return ObserveProducts(scaled);
}

// Adds the activations of a step.
Status AddActivations(const ObservedProducts& products, Session& session, int64_t rows,
                      ImportanceSums& sums) {
  std::vector<float> values;
  std::vector<int32_t> experts;
  for (const ProductInput& input : products.inputs) {
    const int64_t rows_of_x = input.x_of_expert ? rows * input.chosen : rows;
    const auto columns = static_cast<size_t>(input.columns);
    values.resize(static_cast<size_t>(rows_of_x) * columns);
    RL_RETURN_IF_ERROR(session.ReadOutput(input.x, std::as_writable_bytes(std::span(values))));
    if (input.experts.empty()) {
      sums.Add(input.weight, values, columns);
      continue;
    }
    experts.resize(static_cast<size_t>(rows * input.chosen));
    RL_RETURN_IF_ERROR(
        session.ReadOutput(input.experts, std::as_writable_bytes(std::span(experts))));
    sums.Add(input.weight, values, columns, {experts, static_cast<size_t>(input.expert_count)});
  }
  return OkStatus();
}

// Says which experts the text never chose: their matrices have no measured columns.
void WarnOfUnseenExperts(const ObservedProducts& products, const ImportanceSums& sums,
                         Console& console) {
  size_t unseen = 0, experts = 0;
  for (const ProductInput& input : products.inputs) {
    if (input.experts.empty()) continue;
    unseen += sums.UnseenExperts(input.weight);
    experts += static_cast<size_t>(input.expert_count);
  }
  if (unseen == 0) return;
  console.Warn(
      fmt::format("the text never reached {} of the {} matrices of experts, whose columns will all "
                  "count the same; a longer text reaches more",
                  unseen, experts));
}

Result<int> MeasureImportance(const ImatrixFlags& flags, Console& console) {
  ConfigFlags config = flags.config;
  RL_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(config));
  if (loaded.config.origin("context.capacity") != Origin::kFlag) {
    config.settings.push_back(
        {"context.capacity", fmt::format("{}", kDefaultChunkTokens), "imatrix"});
  }
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(flags.output));
  RL_ASSIGN_OR_RETURN(const ConfiguredModel configured, LoadModel(config, console));
  const LoadedModel& model = configured.model;
  for (const std::string& part : model.file.file->paths()) {
    RL_RETURN_IF_ERROR(file.CheckIsNot(part));
  }
  RL_RETURN_IF_ERROR(file.CheckIsNot(flags.text));
  RL_ASSIGN_OR_RETURN(const auto chunks, ChunksOfFile(flags, model));
  GgufWeights weights(*model.file.file);
  RL_ASSIGN_OR_RETURN(const ObservedProducts products, BuildGraph(model, weights));
  const auto registry =
      MakeRegistry(model.config(), config.plugins, ProcessHooks(configured.environment));
  RL_ASSIGN_OR_RETURN(const BackendDevices devices,
                      OpenDevices(*registry, model.config(), console));
  SessionOptions options;
  options.devices = devices.Borrow();
  options.policy = devices.policy;
  options.limits = {.max_t = model.capacity()};
  RL_ASSIGN_OR_RETURN(const auto session, Session::Create(products.graph, weights, options));
  ImportanceSums sums;
  Progress progress(console, "imatrix");
  for (const std::vector<int32_t>& chunk : chunks) {
    session->ForgetSlot(0);
    RL_RETURN_IF_ERROR(
        session->Run(StepRows::Consecutive(chunk, /*past=*/0, /*slot=*/0, DemandMode::kAllRows)));
    RL_RETURN_IF_ERROR(AddActivations(products, *session, std::ssize(chunk), sums));
    progress.Update(&chunk - chunks.data() + 1, std::ssize(chunks));
  }
  progress.Clear();
  WarnOfUnseenExperts(products, sums, console);
  RL_RETURN_IF_ERROR(
      sums.Write(std::move(file), {.text = flags.text,
                                   .chunks = static_cast<uint32_t>(chunks.size()),
                                   .chunk_tokens = static_cast<uint32_t>(model.capacity())}));
  console.Note(fmt::format("wrote '{}': {} matrices over {} chunks of {} tokens", flags.output,
                           products.inputs.size(), chunks.size(), model.capacity()));
  return 0;
}

}  // namespace

void AddImatrixCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<ImatrixFlags>();
  CLI::App* command = app.add_subcommand(
      "imatrix", "Measure over a text which columns of a model's matrices matter");
  AddModelOptions(*command, flags->config);
  command->add_option("-f,--file", flags->text, "The text")->required()->option_text("FILE");
  command->add_option("-o,--output", flags->output, "Where it goes [default imatrix.gguf]")
      ->option_text("FILE");
  command->add_option("--chunks", flags->chunks, "Read at most this many chunks of the text")
      ->check(CLI::Range(1, 1'000'000))
      ->option_text("N");
  command->footer(
      "Example:\n  rullama imatrix -m model-bf16.gguf -f text.txt -o imatrix.gguf\n"
      "  rullama quantize model-bf16.gguf model-q4.gguf Q4_K_M --imatrix imatrix.gguf");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return MeasureImportance(*flags, context.console); };
  });
}

}  // namespace rullama::cli
