#include "models/quantize/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <thread>
#include <vector>

#include "core/gguf/dequantize.h"
#include "core/gguf/gguf_writer.h"
#include "core/gguf/loaded_tensor.h"
#include "core/gguf/quantize.h"

namespace rullama {
namespace {

// Values converted between two writes: enough to keep threads busy, small compared with a model. A
// multiple of every block length.
constexpr uint64_t kPieceValues = uint64_t{1} << 22;
// Values a thread converts between two looks at the cancel flag.
constexpr uint64_t kSliceValues = uint64_t{1} << 16;
// The version of the block layouts that general.quantization_version names.
constexpr uint32_t kQuantizationVersion = 2;

constexpr std::array kSourceTypes = {DType::kF32, DType::kF16, DType::kBF16};

struct Plan {
  std::vector<DType> types;                        // as in the output, by tensor of the input
  std::vector<const std::vector<float>*> columns;  // ColumnsOf() each
  uint64_t elements = 0;
  QuantizeReport report;
};

Status CheckSource(const TensorInfo& tensor, DType target) {
  if (tensor.dtype == target) return OkStatus();
  if (std::ranges::find(kSourceTypes, tensor.dtype) != kSourceTypes.end()) return OkStatus();
  return MakeError(ErrorKind::kModelFile, "quantize.source_type",
                   "tensor '{}' has type {}, expected f32, f16 or bf16: quantising twice adds the "
                   "errors of both; start from the file before it was quantised",
                   tensor.name, NameOf(tensor.dtype));
}

// The importance of the columns of a tensor that becomes `type`, one after another for each matrix
// of it; null if there is none, or if it is only rounded.
Result<const std::vector<float>*> ColumnsOf(const QuantizeOptions& options,
                                            const TensorInfo& tensor, DType type) {
  if (options.importance == nullptr || !IsBlockType(type)) return nullptr;
  const std::vector<float>* columns = options.importance->Find(tensor.name);
  if (columns == nullptr) return nullptr;
  const uint64_t expected = tensor.dims[0] * (tensor.rank == 3 ? tensor.dims[2] : 1);
  if (columns->size() == expected) return columns;
  return MakeError(ErrorKind::kModelFile, "imatrix.shape",
                   "the importance matrix has {} columns for '{}', expected {}; is it that of "
                   "another model?",
                   columns->size(), tensor.name, expected);
}

// Of the first layer, as llama-quantize counts.
Result<int64_t> HeadsPerKv(const GgufFile& input, std::string_view architecture, uint32_t layers) {
  const std::string kv = fmt::format("{}.attention.head_count_kv", architecture);
  if (!input.Has(kv) || layers == 0) return 1;
  RL_ASSIGN_OR_RETURN(
      const auto heads,
      input.GetU32PerLayer(fmt::format("{}.attention.head_count", architecture), layers));
  RL_ASSIGN_OR_RETURN(const auto kv_heads, input.GetU32PerLayer(kv, layers));
  return int64_t{heads.front()} / std::max<int64_t>(1, kv_heads.front());
}

// The types that the mix gives the tensors; nothing for those that stay as they are.
Result<std::vector<std::optional<DType>>> ChooseTypes(const GgufFile& input,
                                                      const QuantizeOptions& options) {
  if (options.copy) return std::vector<std::optional<DType>>(input.tensors().size());
  std::vector<QuantTensor> tensors;
  for (const TensorInfo& tensor : input.tensors()) {
    tensors.push_back({tensor.name, tensor.rank, tensor.dims[0]});
  }
  if (options.towers) return ChooseTowerTypes(options.mix, tensors);
  RL_ASSIGN_OR_RETURN(const std::string_view architecture, input.GetString("general.architecture"));
  RL_ASSIGN_OR_RETURN(const uint32_t layers,
                      input.GetU32(fmt::format("{}.block_count", architecture)));
  RL_ASSIGN_OR_RETURN(const auto experts,
                      input.FindU32(fmt::format("{}.expert_count", architecture)));
  NetworkFacts network{layers, experts.value_or(0)};
  RL_ASSIGN_OR_RETURN(network.heads_per_kv, HeadsPerKv(input, architecture, layers));
  return ChooseTypes(options.mix, tensors, network);
}

Result<Plan> MakePlan(const GgufFile& input, const QuantizeOptions& options) {
  RL_ASSIGN_OR_RETURN(const auto chosen, ChooseTypes(input, options));
  Plan plan;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const TensorInfo& tensor = input.tensors()[i];
    const DType type = chosen[i].value_or(tensor.dtype);
    RL_RETURN_IF_ERROR(CheckSource(tensor, type));
    plan.types.push_back(type);
    RL_ASSIGN_OR_RETURN(const std::vector<float>* columns, ColumnsOf(options, tensor, type));
    plan.columns.push_back(columns);
    plan.elements += tensor.elements();
    plan.report.bytes_before += tensor.bytes;
    plan.report.bytes_after += RowBytes(type, tensor.elements());
    ++(type == tensor.dtype ? plan.report.copied : plan.report.converted[type]);
    const bool unknown = options.importance != nullptr && columns == nullptr && IsBlockType(type);
    if (unknown && type != tensor.dtype) ++plan.report.without_importance;
    if (columns != nullptr && tensor.rank == 3) {
      plan.report.unseen_experts +=
          Importance::UnseenExperts(*columns, static_cast<size_t>(tensor.dims[0]));
    }
  }
  return plan;
}

class Quantizer {
 public:
  Quantizer(const GgufFile& input, const QuantizeOptions& options, const Plan& plan)
      : input_(input), options_(options), plan_(plan) {}

  Status Write(GgufOutput& output) {
    for (size_t i = 0; i < plan_.types.size(); ++i) {
      // A file that shrank would end the process on reading beyond its end.
      RL_RETURN_IF_ERROR(input_.CheckUnchanged());
      const TensorInfo& tensor = input_.tensors()[i];
      const Conversion conversion{tensor, plan_.types[i], plan_.columns[i]};
      error_ = {};
      RL_RETURN_IF_ERROR(WriteTensor(conversion, output));
      if (options_.on_tensor && plan_.types[i] != tensor.dtype) {
        options_.on_tensor({tensor.name, plan_.types[i], error_.Relative()});
      }
    }
    return OkStatus();
  }

 private:
  struct Conversion {
    const TensorInfo& tensor;
    DType type;
    const std::vector<float>* columns;
  };

  // Sums over values and how they come back.
  struct SquaredError {
    double error = 0, square = 0;

    [[nodiscard]] double Relative() const { return square > 0 ? std::sqrt(error / square) : 0; }
    void operator+=(const SquaredError& other) {
      error += other.error;
      square += other.square;
    }
  };

  Status WriteTensor(const Conversion& conversion, GgufOutput& output) {
    const TensorInfo& tensor = conversion.tensor;
    const DType type = conversion.type;
    const uint64_t elements = tensor.elements();
    for (uint64_t first = 0; first < elements; first += kPieceValues) {
      const uint64_t count = std::min(kPieceValues, elements - first);
      RL_RETURN_IF_ERROR(CheckNotCancelled());
      RL_ASSIGN_OR_RETURN(const LoadedTensor source,
                          LoadedTensor::Load(input_, tensor, RowBytes(tensor.dtype, first),
                                             RowBytes(tensor.dtype, count)));
      if (type == tensor.dtype) {
        RL_RETURN_IF_ERROR(output.Append(source.bytes()));
      } else {
        piece_.resize(static_cast<size_t>(RowBytes(type, count)));
        RL_RETURN_IF_ERROR(ConvertPiece(conversion, source.bytes(), first, count));
        RL_RETURN_IF_ERROR(output.Append(piece_));
      }
      done_ += count;
      if (options_.on_progress) options_.on_progress(done_, plan_.elements);
    }
    return OkStatus();
  }

  // Converts the blocks of `count` values into piece_, with all threads. Returns the error that
  // comes first in the tensor.
  Status ConvertPiece(const Conversion& conversion, std::span<const std::byte> blocks,
                      uint64_t first, uint64_t count) {
    const uint64_t slices = (count + kSliceValues - 1) / kSliceValues;
    const auto workers = std::min(static_cast<uint64_t>(std::max(1, options_.threads)), slices);
    std::vector<Status> results(static_cast<size_t>(workers));
    std::vector<SquaredError> errors(static_cast<size_t>(workers));
    {
      std::vector<std::jthread> threads;
      threads.reserve(static_cast<size_t>(workers));
      for (uint64_t worker = 0; worker < workers; ++worker) {
        threads.emplace_back([&, worker] {
          const uint64_t begin = slices * worker / workers * kSliceValues;
          const uint64_t end = std::min(slices * (worker + 1) / workers * kSliceValues, count);
          results[static_cast<size_t>(worker)] = ConvertRange(conversion, blocks, first, begin, end,
                                                              errors[static_cast<size_t>(worker)]);
        });
      }
    }
    for (const Status& result : results) RL_RETURN_IF_ERROR(result);
    for (const SquaredError& error : errors) error_ += error;
    return OkStatus();
  }

  // Values [begin, end) of the piece that starts with value `first` of the tensor and has these
  // blocks.
  Status ConvertRange(const Conversion& conversion, std::span<const std::byte> blocks,
                      uint64_t first, uint64_t begin, uint64_t end, SquaredError& error) {
    const TensorInfo& tensor = conversion.tensor;
    const DType type = conversion.type;
    std::vector<float> values, importance;
    for (uint64_t at = begin; at < end; at += kSliceValues) {
      RL_RETURN_IF_ERROR(CheckNotCancelled());
      values.resize(static_cast<size_t>(std::min(kSliceValues, end - at)));
      const auto source =
          blocks.subspan(static_cast<size_t>(RowBytes(tensor.dtype, at)),
                         static_cast<size_t>(RowBytes(tensor.dtype, values.size())));
      RL_RETURN_IF_ERROR(Dequantize(tensor.dtype, source, values));
      const auto target =
          std::span(piece_).subspan(static_cast<size_t>(RowBytes(type, at)),
                                    static_cast<size_t>(RowBytes(type, values.size())));
      if (conversion.columns != nullptr) {
        importance.resize(values.size());
        FillImportance(tensor, *conversion.columns, first + at, importance);
      }
      if (Status status = Quantize(type, values, target, first + at, importance); !status) {
        return tl::unexpected(
            std::move(status).error().WithContext(fmt::format("tensor '{}'", tensor.name)));
      }
      if (options_.on_tensor) RL_RETURN_IF_ERROR(Measure(type, values, target, error));
    }
    return OkStatus();
  }

  // That of the columns of values `first` and on.
  static void FillImportance(const TensorInfo& tensor, const std::vector<float>& columns,
                             uint64_t first, std::span<float> importance) {
    const uint64_t row = tensor.dims[0], matrix = row * tensor.dims[1];
    for (size_t i = 0; i < importance.size(); ++i) {
      const uint64_t at = first + i;
      const uint64_t expert = columns.size() == row ? 0 : at / matrix;
      importance[i] = columns[static_cast<size_t>(expert * row + at % row)];
    }
  }

  static Status Measure(DType type, std::span<const float> values,
                        std::span<const std::byte> blocks, SquaredError& error) {
    std::vector<float> back(values.size());
    RL_RETURN_IF_ERROR(Dequantize(type, blocks, back));
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = values[i], difference = value - static_cast<double>(back[i]);
      error.error += difference * difference;
      error.square += value * value;
    }
    return OkStatus();
  }

  [[nodiscard]] Status CheckNotCancelled() const {
    if (options_.cancel == nullptr || !options_.cancel->load(std::memory_order_relaxed)) {
      return OkStatus();
    }
    return MakeError(ErrorKind::kRuntime, "run.cancelled", "cancelled; no file was written");
  }

  const GgufFile& input_;
  const QuantizeOptions& options_;
  const Plan& plan_;
  std::vector<std::byte> piece_;
  SquaredError error_;  // of the current tensor, where somebody asks
  uint64_t done_ = 0;
};

}  // namespace

Result<QuantizeReport> QuantizeFile(const GgufFile& input, const QuantizeOptions& options,
                                    const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  for (const std::string& part : input.paths()) RL_RETURN_IF_ERROR(file.CheckIsNot(part));
  RL_ASSIGN_OR_RETURN(const Plan plan, MakePlan(input, options));
  GgufWriter writer;
  for (const GgufEntry& entry : input.metadata()) {
    RL_RETURN_IF_ERROR(writer.SetRaw(entry.key, entry.value));
  }
  if (!options.copy) {
    RL_RETURN_IF_ERROR(writer.Set("general.file_type", options.mix.file_type));
    RL_RETURN_IF_ERROR(writer.Set("general.quantization_version", kQuantizationVersion));
  }
  for (size_t i = 0; i < plan.types.size(); ++i) {
    const TensorInfo& tensor = input.tensors()[i];
    RL_RETURN_IF_ERROR(
        writer.AddTensor(tensor.name, plan.types[i], std::span(tensor.dims).first(tensor.rank)));
  }
  RL_ASSIGN_OR_RETURN(GgufOutput output, writer.Begin(std::move(file)));
  RL_RETURN_IF_ERROR(Quantizer(input, options, plan).Write(output));
  RL_RETURN_IF_ERROR(output.Finish());
  return plan.report;
}

}  // namespace rullama
