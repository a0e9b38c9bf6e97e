// rullama inspect: the contents of a model file, and what it would cost to run it.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/commands/command.h"
#include "cli/commands/downloaded_model.h"
#include "cli/commands/drafter_summary.h"
#include "cli/commands/json_text.h"
#include "cli/commands/loading.h"
#include "cli/commands/model_summary.h"
#include "cli/commands/tower_summary.h"
#include "cli/reports/memory_bars.h"
#include "core/base/printable.h"
#include "core/base/size_text.h"
#include "core/gguf/check_numbers.h"
#include "models/registry.h"

namespace rullama::cli {
namespace {

using nlohmann::json;

constexpr size_t kMaxShownElements = 8;  // of an array
constexpr size_t kMaxShownText = 120;    // bytes of a string, except with --json
constexpr size_t kMaxSafeBytes = 1024;   // of a name, or of an error that quotes one

struct InspectFlags {
  NamedModel model;
  std::string mmproj;
  std::string drafter;
  int64_t context = kDefaultCapacity;
  bool json = false;
  bool check = false;
  ConfigFlags config;
};

template <typename T>
json NumberAt(const GgufValue& value, size_t index) {
  return LoadUnaligned<T>(value.bytes.data() + index * sizeof(T));
}

json ScalarAt(const GgufValue& value, size_t index) {
  switch (value.scalar_type()) {
    case GgufType::kU8:
      return NumberAt<uint8_t>(value, index);
    case GgufType::kI8:
      return NumberAt<int8_t>(value, index);
    case GgufType::kU16:
      return NumberAt<uint16_t>(value, index);
    case GgufType::kI16:
      return NumberAt<int16_t>(value, index);
    case GgufType::kU32:
      return NumberAt<uint32_t>(value, index);
    case GgufType::kI32:
      return NumberAt<int32_t>(value, index);
    case GgufType::kF32:
      return NumberAt<float>(value, index);
    case GgufType::kBool:
      return value.bytes[index] != std::byte{0};
    case GgufType::kU64:
      return NumberAt<uint64_t>(value, index);
    case GgufType::kI64:
      return NumberAt<int64_t>(value, index);
    case GgufType::kF64:
      return NumberAt<double>(value, index);
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return nullptr;
}

// A scalar or string as it is; of an array the length and the first elements.
json ValueAsJson(const GgufValue& value) {
  if (value.type == GgufType::kString) return std::string(value.text());
  if (value.type != GgufType::kArray) return ScalarAt(value, 0);
  json first = json::array();
  if (value.element_type == GgufType::kString) {
    for (const std::string_view text : value.strings()) {
      if (first.size() == kMaxShownElements) break;
      first.push_back(std::string(text));
    }
  } else {
    const size_t shown = std::min<size_t>(value.count, kMaxShownElements);
    for (size_t i = 0; i < shown; ++i) first.push_back(ScalarAt(value, i));
  }
  return {{"type", NameOf(value.element_type)}, {"count", value.count}, {"first", first}};
}

std::string_view DialectOf(const GgufFile& file) {
  const auto family = FamilyOf(file);
  return family ? (*family)->dialect(file) : "unknown";
}

json TensorsAsJson(const GgufFile& file) {
  json tensors = json::array();
  for (const TensorInfo& tensor : file.tensors()) {
    json dims = json::array();  // numpy order, as everywhere in rullama
    for (size_t i = tensor.rank; i-- > 0;) dims.push_back(tensor.dims[i]);
    tensors.push_back({{"name", std::string(tensor.name)},
                       {"type", NameOf(tensor.dtype)},
                       {"dims", dims},
                       {"offset", tensor.offset},
                       {"bytes", tensor.bytes}});
  }
  return tensors;
}

// The towers in a file, for the model if it is one of text.
Result<Towers> ReadTowersFor(const ModelFile& model, const GgufFile& file) {
  const auto opened = OpenModel(*model.file);
  return opened ? (*opened)->ReadTowers(file) : ReadTowers(file);
}

// The memory that a session of one slot needs, or the reason why rullama cannot run the file.
json MemoryAsJson(const GgufFile& file, int64_t context) {
  const auto model = OpenModel(file);
  if (!model) {
    return {{"reason", model.error().message}, {"code", model.error().id}};
  }
  const int64_t capacity = std::min(context, (*model)->facts().context_length);
  const auto cache_of = [&](DType type) {
    return (*model)->CacheBytes({.slots = 1, .capacity = capacity, .kv_dtype = type});
  };
  uint64_t weights = 0;
  for (const TensorInfo& tensor : file.tensors()) weights += tensor.bytes;
  const uint64_t cache = cache_of(DType::kF16);
  json by_type = json::object();
  for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
    by_type[std::string(NameOf(type))] = cache_of(type);
  }
  return {{"context", capacity},
          {"weights_bytes", weights},
          {"kv_cache_bytes", cache},
          {"kv_cache_bytes_by_type", std::move(by_type)},
          {"total_bytes", weights + cache}};
}

// The towers for the model, with the reason where they cannot be read; null if there are none. They
// are in the file `mmproj`, else in that of Ollama's store, else in the model's own.
json TowersOf(const ModelFile& model, const std::string& mmproj) {
  const auto read = [&]() -> Result<json> {
    std::optional<GgufFile> own;
    std::filesystem::path path = mmproj;
    if (mmproj.empty() && model.ollama && model.ollama->projector) path = *model.ollama->projector;
    if (!path.empty()) {
      RL_ASSIGN_OR_RETURN(own, GgufFile::Open(path));
    }
    const GgufFile& file = own ? *own : *model.file;
    RL_ASSIGN_OR_RETURN(const Towers towers, ReadTowersFor(model, file));
    if (!towers.picture && !towers.sound) return json();
    RL_ASSIGN_OR_RETURN(json result, TowersAsJson(towers, file));
    result["path"] = file.path();
    return result;
  };
  const auto towers = read();
  if (towers) return *towers;
  return {{"reason", towers.error().message}, {"code", towers.error().id}};
}

// Whether `run` accepts the file, with the reason where it does not.
json RunnableAsJson(const ModelSummary& summary) {
  if (!summary.refused) return {{"yes", true}};
  return {{"yes", false}, {"reason", summary.refused->message}, {"code", summary.refused->id}};
}

// The files of a split model with their sizes.
json PartsAsJson(const GgufFile& file) {
  json parts = json::array();
  const std::vector<std::string> paths = file.paths();
  for (size_t i = 0; i < paths.size(); ++i) {
    const uint64_t bytes = paths.size() == 1 ? file.total_bytes() : file.parts()[i].size();
    parts.push_back({{"path", paths[i]}, {"bytes", bytes}});
  }
  return parts;
}

json FileAsJson(const ModelFile& model, const ModelSummary& summary, const InspectFlags& flags) {
  const GgufFile& file = *model.file;
  json metadata = json::object();
  for (const GgufEntry& entry : file.metadata()) {
    metadata[std::string(entry.key)] = ValueAsJson(entry.value);
  }
  std::map<std::string, std::pair<uint64_t, uint64_t>> by_type;  // count, bytes
  for (const TensorInfo& tensor : file.tensors()) {
    auto& [count, bytes] = by_type[std::string(NameOf(tensor.dtype))];
    ++count;
    bytes += tensor.bytes;
  }
  json types = json::object();
  for (const auto& [type, sum] : by_type) {
    types[type] = {{"tensors", sum.first}, {"bytes", sum.second}};
  }
  return {{"name", summary.name},
          {"architecture", summary.architecture},
          {"quantization", summary.quantization},
          {"context_length", summary.context_length ? json(*summary.context_length) : json()},
          {"runnable", RunnableAsJson(summary)},
          {"path", file.path()},
          {"parts", PartsAsJson(file)},
          {"version", file.version()},
          {"alignment", file.alignment()},
          {"dialect", DialectOf(file)},
          {"parameters", summary.parameters},
          {"bytes", summary.bytes},
          {"types", types},
          {"memory", MemoryAsJson(file, flags.context)},
          {"towers", TowersOf(model, flags.mmproj)},
          {"drafter", DrafterAsJson(model, flags.drafter)},
          {"adapters", summary.adapters},
          {"metadata", metadata},
          {"tensors", TensorsAsJson(file)}};
}

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Names of a file on a terminal: control characters could do anything there.
std::string Safe(std::string_view text) { return Printable(text, kMaxSafeBytes); }

std::string Shortened(std::string text) {
  if (text.size() <= kMaxShownText) return text;
  size_t length = kMaxShownText;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  return text.substr(0, length) + "...";
}

std::string SizeOf(const json& bytes) { return SizeText(bytes.get<uint64_t>()); }

std::string TowersLines(const json& towers) {
  if (!towers.is_object()) return {};
  if (!towers.contains("reason")) return TowersText(towers);
  return fmt::format("towers: cannot be used: {} [{}]\n", Safe(towers["reason"].get<std::string>()),
                     towers["code"].get<std::string>());
}

// The beginning of the output: the kind of model, whether it runs, and the memory it takes.
std::string HeadText(const json& file) {
  std::string text = fmt::format(
      "{}: {}, {}, {} parameters, {}", Safe(file["name"].get<std::string>()),
      Safe(file["architecture"].get<std::string>()), file["quantization"].get<std::string>(),
      ParametersText(file["parameters"].get<uint64_t>()), SizeOf(file["bytes"]));
  if (file["parts"].size() > 1) text += fmt::format(" in {} files", file["parts"].size());
  if (file["context_length"].is_number()) {
    text += fmt::format(", context length {}", Dump(file["context_length"]));
  }
  const json& runnable = file["runnable"];
  text += "\nrullama can run this: ";
  text += runnable["yes"].get<bool>()
              ? "yes\n"
              : fmt::format("no: {} [{}]\n", Safe(runnable["reason"].get<std::string>()),
                            runnable["code"].get<std::string>());
  const json& memory = file["memory"];
  if (!memory.contains("reason")) {
    text += fmt::format("memory for a context of {}: weights {}, KV cache (f16) {}, together {}\n",
                        Dump(memory["context"]), SizeOf(memory["weights_bytes"]),
                        SizeOf(memory["kv_cache_bytes"]), SizeOf(memory["total_bytes"]));
    const json& by_type = memory["kv_cache_bytes_by_type"];
    text +=
        fmt::format("  the KV cache in other types (context.kv_dtype): {} in q8_0, {} in q4_0\n",
                    SizeOf(by_type["q8_0"]), SizeOf(by_type["q4_0"]));
  }
  text += TowersLines(file["towers"]);
  if (const std::string line = DrafterText(file["drafter"]); !line.empty()) {
    text += "drafter: " + line;
  }
  for (const json& adapter : file["adapters"]) {
    text += fmt::format("adapter: {}\n", Safe(adapter.get<std::string>()));
  }
  return text + fmt::format("file: {}, GGUF {}, dialect of {}, {} tensors\n",
                            Safe(file["path"].get<std::string>()), Dump(file["version"]),
                            file["dialect"].get<std::string>(), file["tensors"].size());
}

// Weights by type, then the cache of one slot if the file can be run.
std::vector<MemoryAmount> AmountsOf(const json& file) {
  std::vector<MemoryAmount> amounts;
  for (const auto& [type, sum] : file["types"].items()) {
    amounts.push_back(
        {type, sum["bytes"].get<uint64_t>(),
         fmt::format("{} tensor{}", Dump(sum["tensors"]), sum["tensors"] == 1 ? "" : "s")});
  }
  const json& memory = file["memory"];
  if (!memory.contains("reason")) {
    amounts.push_back({"KV cache", memory["kv_cache_bytes"].get<uint64_t>(),
                       fmt::format("for a context of {}", Dump(memory["context"]))});
  }
  return amounts;
}

std::string FileText(const json& file) {
  std::string text = HeadText(file);
  for (const std::string& line : MemoryBars(AmountsOf(file))) text += "  " + line + "\n";
  text += "\nmetadata\n";
  for (const auto& [key, value] : file["metadata"].items()) {
    text += fmt::format("  {} = {}\n", Safe(key), Safe(Shortened(Dump(value))));
  }
  text += "\ntensors\n";
  for (const json& tensor : file["tensors"]) {
    text +=
        fmt::format("  {:<40} {:>6} {:<20} {:>12} bytes\n", Safe(tensor["name"].get<std::string>()),
                    tensor["type"].get<std::string>(), Dump(tensor["dims"]), Dump(tensor["bytes"]));
  }
  return text;
}

// The faults in the numbers of each tensor, or why they cannot be read; empty if all is well.
json CheckAsJson(const GgufFile& file) {
  json tensors = json::array();
  for (const TensorInfo& tensor : file.tensors()) {
    const auto numbers = NumbersOf(file, tensor);
    if (!numbers) {
      tensors.push_back({{"tensor", tensor.name},
                         {"reason", numbers.error().message},
                         {"code", numbers.error().id}});
    } else if (!numbers->usual()) {
      tensors.push_back({{"tensor", tensor.name},
                         {"nan", numbers->nan},
                         {"infinite", numbers->infinite},
                         {"too_large", numbers->too_large},
                         {"largest", numbers->largest},
                         {"first", numbers->first}});
    }
  }
  return tensors;
}

std::string CheckText(const json& file) {
  std::string text = "\nnumbers\n";
  for (const json& found : file["check"]) {
    text += fmt::format("  {:<40} ", Safe(found["tensor"].get<std::string>()));
    text += found.contains("reason")
                ? Safe(found["reason"].get<std::string>()) + "\n"
                : fmt::format("{} NaN, {} infinite, {} above {:g}; the first is element {}\n",
                              Dump(found["nan"]), Dump(found["infinite"]), Dump(found["too_large"]),
                              kLargestUsualWeight, Dump(found["first"]));
  }
  if (!file["check"].empty()) return text;
  return text + fmt::format("  all of {} tensors are finite and at most {:g}\n",
                            file["tensors"].size(), kLargestUsualWeight);
}

// An error if there is a tensor with such numbers.
Status CheckResult(const json& check) {
  const auto is_damaged = [](const json& found) { return !found.contains("reason"); };
  const auto damaged = std::ranges::count_if(check, is_damaged);
  if (damaged == 0) return OkStatus();
  const json& first = *std::ranges::find_if(check, is_damaged);
  return MakeError(
      ErrorKind::kModelFile, "inspect.numbers",
      "{} {} numbers that no trained model has, first '{}'; the download is damaged or "
      "the conversion went wrong, fetch the file again",
      damaged, damaged == 1 ? "tensor has" : "tensors have",
      Safe(first["tensor"].get<std::string>()));
}

Result<int> Inspect(InspectFlags flags, Console& console) {
  RL_ASSIGN_OR_RETURN(const downloads::ModelPaths paths, FindNamedModel(flags.model, console));
  if (flags.mmproj.empty() && paths.projector) flags.mmproj = paths.projector->string();
  RL_ASSIGN_OR_RETURN(const ModelFile model, OpenModelFile(paths.model.string()));
  RL_ASSIGN_OR_RETURN(const ModelSummary summary, SummarizeOnBackend(model, flags.config, console));
  json file = FileAsJson(model, summary, flags);
  if (flags.check) file["check"] = CheckAsJson(*model.file);
  std::string text = flags.json ? JsonLine(file) : FileText(file);
  if (flags.check && !flags.json) text += CheckText(file);
  RL_RETURN_IF_ERROR(console.Write(text));
  if (flags.check) RL_RETURN_IF_ERROR(CheckResult(file["check"]));
  return 0;
}

}  // namespace

void AddInspectCommand(CLI::App& app, CommandContext& context) {
  const auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = app.add_subcommand("inspect", "Show the contents of a model file");
  AddNamedModel(*command, "file,-m,--model", flags->model);
  command->add_option("--mmproj", flags->mmproj, "File of the model's towers")->option_text("FILE");
  command->add_option("--draft-model,--draft", flags->drafter, "File of the model's drafter")
      ->option_text("FILE");
  command->add_option("-c,--ctx-size", flags->context, "Estimate memory for this context")
      ->check(CLI::Range(int64_t{1}, int64_t{16777216}))
      ->option_text("N");
  AddBackendOptions(*command, flags->config);
  command->add_flag("--json", flags->json, "As one JSON object");
  command->add_flag("--check", flags->check,
                    "Read all weights and name tensors with NaN, infinities or damaged scales");
  command->footer(R"(Examples:
  rullama inspect gemma4:e2b -c 32768
  rullama inspect -hf ggml-org/gemma-3-270m-it-GGUF:Q8_0
  rullama inspect model.gguf --json)");
  command->callback([flags, &context] {
    context.action = [flags, &context] { return Inspect(*flags, context.console); };
  });
}

}  // namespace rullama::cli
