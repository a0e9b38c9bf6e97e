#include "models/common/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>
#include <utility>

#include "core/gguf/dequantize.h"
#include "core/gguf/gguf_writer.h"
#include "core/gguf/loaded_tensor.h"
#include "core/gguf/quantize.h"

namespace rullama {
namespace {

// Values merged between two writes: enough to keep threads busy, small compared with a model.
constexpr uint64_t kPieceValues = uint64_t{1} << 22;

// A part of an adapter with the product of its factors.
struct Delta {
  const AdapterWeight* weight;
  double scale;
};
using Deltas = std::vector<Delta>;

// Sums of squares, for the relative norms of a tensor.
struct Squares {
  double error = 0;
  double change = 0;
  double merged = 0;

  void Add(const Squares& other) {
    error += other.error;
    change += other.change;
    merged += other.merged;
  }
};

// The type of a merged tensor.
DType MergedType(DType own, const MergeOptions& options) {
  if (options.type) return *options.type;
  constexpr uint64_t kValues = 1024;  // a multiple of each type's block
  const bool narrow = options.least && RowBytes(own, kValues) < RowBytes(*options.least, kValues);
  return narrow ? *options.least : own;
}

uint64_t RowsOf(const TensorInfo& tensor) { return tensor.elements() / tensor.dims[0]; }

Status CheckTensor(const TensorInfo& tensor, const AdapterWeight& weight, DType type) {
  const auto rows = static_cast<uint64_t>(std::max<int64_t>(1, weight.experts) * weight.outputs);
  if (tensor.dims[0] != static_cast<uint64_t>(weight.inputs) || RowsOf(tensor) != rows) {
    return MakeError(
        ErrorKind::kModelFile, "adapter.shape",
        "'{}' has {} rows of {} in the file, expected {} rows of {} as the adapter has",
        tensor.name, RowsOf(tensor), tensor.dims[0], rows, weight.inputs);
  }
  if (CanQuantize(type)) return OkStatus();
  return MakeError(ErrorKind::kUsage, "adapter.merge_type",
                   "'{}' has type {}, which cannot be written; expected one of {}. Give merged "
                   "tensors another type with --type",
                   tensor.name, NameOf(type), QuantizableTypes());
}

// A factor in a tensor of its own would multiply the adapter too.
Status CheckHasNoScale(const GgufFile& input, std::string_view name) {
  constexpr std::string_view kSuffix = ".weight";
  if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
  if (input.FindTensor(fmt::format("{}.scale", name)) == nullptr) return OkStatus();
  return MakeError(ErrorKind::kUsage, "adapter.merge_type",
                   "the factor of '{}.weight' is in '{}.scale' (NVFP4 files), expected a weight "
                   "without one; merge into the model before it was quantised",
                   name, name);
}

// The adapters of each tensor of the file.
Result<std::map<std::string_view, Deltas>> DeltasByTensor(const GgufFile& input,
                                                          std::span<const ScaledAdapter> adapters,
                                                          const MergeOptions& options) {
  std::map<std::string_view, Deltas> deltas;
  for (const ScaledAdapter& scaled : adapters) {
    for (const AdapterWeight& weight : scaled.adapter.weights) {
      const TensorInfo* tensor = input.FindTensor(weight.tensor);
      if (tensor == nullptr) {
        return MakeError(ErrorKind::kModelFile, "adapter.unknown_tensor",
                         "the file has no tensor '{}', expected one for the adapter '{}'",
                         weight.tensor, scaled.adapter.path);
      }
      RL_RETURN_IF_ERROR(CheckHasNoScale(input, weight.tensor));
      RL_RETURN_IF_ERROR(CheckTensor(*tensor, weight, MergedType(tensor->dtype, options)));
      deltas[tensor->name].push_back({&weight, weight.scale * scaled.scale});
    }
  }
  return deltas;
}

class Merger {
 public:
  Merger(const GgufFile& input, const std::map<std::string_view, Deltas>& deltas,
         const MergeOptions& options)
      : input_(input), deltas_(deltas), options_(options) {
    for (const TensorInfo& tensor : input.tensors()) total_ += tensor.elements();
  }

  [[nodiscard]] DType TypeOf(const TensorInfo& tensor) const {
    return deltas_.contains(tensor.name) ? MergedType(tensor.dtype, options_) : tensor.dtype;
  }

  // Without an output, tensors are merged and measured only.
  Result<std::vector<MergedTensor>> Write(GgufOutput* output) {
    for (const TensorInfo& tensor : input_.tensors()) {
      // A file that shrank would end the process on reading beyond its end.
      RL_RETURN_IF_ERROR(input_.CheckUnchanged());
      RL_RETURN_IF_ERROR(CheckNotCancelled());
      const auto found = deltas_.find(tensor.name);
      if (found == deltas_.end()) {
        if (output != nullptr) RL_RETURN_IF_ERROR(Copy(tensor, *output));
        Progress(tensor.elements());
      } else {
        RL_RETURN_IF_ERROR(WriteMerged(tensor, found->second, output));
      }
    }
    return std::move(merged_);
  }

 private:
  Status Copy(const TensorInfo& tensor, GgufOutput& output) const {
    RL_ASSIGN_OR_RETURN(const LoadedTensor loaded, LoadedTensor::Load(input_, tensor));
    return output.Append(loaded.bytes());
  }

  Status WriteMerged(const TensorInfo& tensor, const Deltas& deltas, GgufOutput* output) {
    const uint64_t rows = RowsOf(tensor);
    const uint64_t most = std::max<uint64_t>(1, kPieceValues / tensor.dims[0]);
    const DType type = TypeOf(tensor);
    Squares squares;
    for (uint64_t first = 0; first < rows; first += most) {
      RL_RETURN_IF_ERROR(CheckNotCancelled());
      const uint64_t count = std::min(most, rows - first);
      piece_.resize(static_cast<size_t>(count * RowBytes(type, tensor.dims[0])));
      RL_RETURN_IF_ERROR(MergePiece(tensor, deltas, first, count, squares));
      if (output != nullptr) RL_RETURN_IF_ERROR(output->Append(piece_));
      Progress(count * tensor.dims[0]);
    }
    const double norm = std::sqrt(squares.merged);
    merged_.push_back({.name = std::string(tensor.name),
                       .type = type,
                       .error = norm > 0 ? std::sqrt(squares.error) / norm : 0,
                       .change = norm > 0 ? std::sqrt(squares.change) / norm : 0});
    return OkStatus();
  }

  // Merges rows into piece_, with all threads. Returns the error that comes first in the tensor.
  Status MergePiece(const TensorInfo& tensor, const Deltas& deltas, uint64_t first, uint64_t count,
                    Squares& squares) {
    const auto workers = std::min(static_cast<uint64_t>(std::max(1, options_.threads)), count);
    std::vector<Status> results(static_cast<size_t>(workers));
    std::vector<Squares> of_row(static_cast<size_t>(count));
    const uint64_t row_bytes = RowBytes(tensor.dtype, tensor.dims[0]);
    RL_ASSIGN_OR_RETURN(const LoadedTensor source,
                        LoadedTensor::Load(input_, tensor, first * row_bytes, count * row_bytes));
    {
      std::vector<std::jthread> threads;
      threads.reserve(static_cast<size_t>(workers));
      for (uint64_t worker = 0; worker < workers; ++worker) {
        threads.emplace_back([&, worker] {
          for (uint64_t row = count * worker / workers; row < count * (worker + 1) / workers;
               ++row) {
            const auto blocks = source.bytes().subspan(static_cast<size_t>(row * row_bytes),
                                                       static_cast<size_t>(row_bytes));
            results[static_cast<size_t>(worker)] =
                MergeRow(tensor, blocks, deltas, first, row, of_row[static_cast<size_t>(row)]);
            if (!results[static_cast<size_t>(worker)]) return;
          }
        });
      }
    }
    for (const Status& result : results) RL_RETURN_IF_ERROR(result);
    // Added up row by row, so that the sums do not depend on the threads.
    for (const Squares& row : of_row) squares.Add(row);
    return OkStatus();
  }

  // Merges row first + `row` of the tensor, of these blocks, into row `row` of piece_.
  Status MergeRow(const TensorInfo& tensor, std::span<const std::byte> blocks, const Deltas& deltas,
                  uint64_t first, uint64_t row, Squares& squares) {
    const uint64_t width = tensor.dims[0];
    std::vector<float> values(static_cast<size_t>(width));
    RL_RETURN_IF_ERROR(Dequantize(tensor.dtype, blocks, values));
    std::vector<float> added(static_cast<size_t>(width), 0);
    for (const Delta& delta : deltas) AddRow(delta, first + row, added);
    for (size_t i = 0; i < width; ++i) values[i] += added[i];
    const DType type = TypeOf(tensor);
    const uint64_t target_bytes = RowBytes(type, width);
    const auto target = std::span(piece_).subspan(static_cast<size_t>(row * target_bytes),
                                                  static_cast<size_t>(target_bytes));
    if (Status status = Quantize(type, values, target, (first + row) * width); !status) {
      return tl::unexpected(
          std::move(status).error().WithContext(fmt::format("tensor '{}'", tensor.name)));
    }
    std::vector<float> stored(static_cast<size_t>(width));
    RL_RETURN_IF_ERROR(Dequantize(type, target, stored));
    for (size_t i = 0; i < width; ++i) {
      const double error = static_cast<double>(stored[i]) - static_cast<double>(values[i]);
      squares.error += error * error;
      squares.change += static_cast<double>(added[i]) * static_cast<double>(added[i]);
      squares.merged += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    return OkStatus();
  }

  // Adds row `row` of scale B A, which is of expert row / outputs.
  static void AddRow(const Delta& delta, uint64_t row, std::span<float> added) {
    const AdapterWeight& weight = *delta.weight;
    const auto rank = static_cast<uint64_t>(weight.rank);
    const uint64_t expert = row / static_cast<uint64_t>(weight.outputs);
    for (uint64_t k = 0; k < rank; ++k) {
      const auto factor = static_cast<float>(
          static_cast<double>(weight.b[static_cast<size_t>(row * rank + k)]) * delta.scale);
      const auto a = std::span(weight.a).subspan(
          static_cast<size_t>((expert * rank + k) * added.size()), added.size());
      for (size_t i = 0; i < added.size(); ++i) added[i] += factor * a[i];
    }
  }

  void Progress(uint64_t elements) {
    done_ += elements;
    if (options_.on_progress) options_.on_progress(done_, total_);
  }

  [[nodiscard]] Status CheckNotCancelled() const {
    if (options_.cancel == nullptr || !options_.cancel->load(std::memory_order_relaxed)) {
      return OkStatus();
    }
    return MakeError(ErrorKind::kRuntime, "run.cancelled", "cancelled; no file was written");
  }

  const GgufFile& input_;
  const std::map<std::string_view, Deltas>& deltas_;
  const MergeOptions& options_;
  uint64_t total_ = 0;
  uint64_t done_ = 0;
  std::vector<std::byte> piece_;
  std::vector<MergedTensor> merged_;
};

}  // namespace

Result<std::vector<MergedTensor>> MergeAdapters(const GgufFile& input,
                                                std::span<const ScaledAdapter> adapters,
                                                const MergeOptions& options,
                                                const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  for (const std::string& part : input.paths()) RL_RETURN_IF_ERROR(file.CheckIsNot(part));
  for (const ScaledAdapter& scaled : adapters) {
    for (const std::string& read : scaled.adapter.files) RL_RETURN_IF_ERROR(file.CheckIsNot(read));
  }
  RL_ASSIGN_OR_RETURN(const auto deltas, DeltasByTensor(input, adapters, options));
  Merger merger(input, deltas, options);
  GgufWriter writer;
  for (const GgufEntry& entry : input.metadata()) {
    RL_RETURN_IF_ERROR(writer.SetRaw(entry.key, entry.value));
  }
  for (const TensorInfo& tensor : input.tensors()) {
    RL_RETURN_IF_ERROR(writer.AddTensor(tensor.name, merger.TypeOf(tensor),
                                        std::span(tensor.dims).first(tensor.rank)));
  }
  RL_ASSIGN_OR_RETURN(GgufOutput output, writer.Begin(std::move(file)));
  RL_ASSIGN_OR_RETURN(std::vector<MergedTensor> merged, merger.Write(&output));
  RL_RETURN_IF_ERROR(output.Finish());
  return merged;
}

Result<std::vector<MergedTensor>> MeasureMerge(const GgufFile& input,
                                               std::span<const ScaledAdapter> adapters,
                                               const MergeOptions& options) {
  RL_ASSIGN_OR_RETURN(const auto deltas, DeltasByTensor(input, adapters, options));
  return Merger(input, deltas, options).Write(nullptr);
}

}  // namespace rullama
