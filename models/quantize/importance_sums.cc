#include "models/quantize/importance_sums.h"

#include <array>
#include <utility>

#include "core/gguf/gguf_writer.h"

namespace rullama {

void ImportanceSums::Add(std::string_view tensor, std::span<const float> rows, size_t columns) {
  auto found = sums_.find(tensor);
  if (found == sums_.end()) found = sums_.emplace(std::string(tensor), Sums{}).first;
  Sums& sums = found->second;
  sums.squares.resize(columns);
  for (size_t i = 0; i < rows.size(); ++i) {
    const double value = rows[i];
    sums.squares[i % columns] += value * value;
  }
  sums.rows += rows.size() / columns;
}

Status ImportanceSums::Write(AtomicFile file, const Origin& origin) const {
  GgufWriter writer;
  RL_RETURN_IF_ERROR(writer.Set("general.type", "imatrix"));
  RL_RETURN_IF_ERROR(writer.SetStrings("imatrix.datasets", std::vector<std::string>{origin.text}));
  RL_RETURN_IF_ERROR(writer.Set("imatrix.chunk_count", origin.chunks));
  RL_RETURN_IF_ERROR(writer.Set("imatrix.chunk_size", origin.chunk_tokens));
  constexpr std::array<uint64_t, 2> kOne = {1, 1};
  for (const auto& [name, sums] : sums_) {
    const std::array<uint64_t, 2> dims = {sums.squares.size(), 1};
    RL_RETURN_IF_ERROR(writer.AddTensor(name + ".in_sum2", DType::kF32, dims));
    RL_RETURN_IF_ERROR(writer.AddTensor(name + ".counts", DType::kF32, kOne));
  }
  RL_ASSIGN_OR_RETURN(GgufOutput output, writer.Begin(std::move(file)));
  for (const auto& [name, sums] : sums_) {
    const std::vector<float> squares(sums.squares.begin(), sums.squares.end());
    const auto rows = static_cast<float>(sums.rows);
    RL_RETURN_IF_ERROR(output.Append(std::as_bytes(std::span(squares))));
    RL_RETURN_IF_ERROR(output.Append(std::as_bytes(std::span(&rows, 1))));
  }
  return output.Finish();
}

}  // namespace rullama
