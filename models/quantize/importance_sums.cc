#include "models/quantize/importance_sums.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/gguf/gguf_writer.h"

namespace rullama {

namespace {

void AddSquares(std::span<const float> row, std::span<double> sums) {
  for (size_t i = 0; i < row.size(); ++i) {
    const double value = row[i];
    sums[i] += value * value;
  }
}

}  // namespace

ImportanceSums::Sums& ImportanceSums::SumsOf(std::string_view tensor, size_t experts,
                                             size_t columns) {
  auto found = sums_.find(tensor);
  if (found == sums_.end()) found = sums_.emplace(std::string(tensor), Sums{}).first;
  found->second.squares.resize(experts * columns);
  found->second.rows.resize(experts);
  return found->second;
}

void ImportanceSums::Add(std::string_view tensor, std::span<const float> rows, size_t columns) {
  Sums& sums = SumsOf(tensor, 1, columns);
  for (size_t first = 0; first < rows.size(); first += columns) {
    AddSquares(rows.subspan(first, columns), sums.squares);
    ++sums.rows[0];
  }
}

void ImportanceSums::Add(std::string_view tensor, std::span<const float> activations,
                         size_t columns, const Routes& routes) {
  Sums& sums = SumsOf(tensor, routes.expert_count, columns);
  const size_t rows = activations.size() / columns;
  const size_t experts_of_row = rows == 0 ? 1 : routes.experts.size() / rows;
  for (size_t i = 0; i < routes.experts.size(); ++i) {
    const auto expert = static_cast<size_t>(routes.experts[i]);
    AddSquares(activations.subspan(i / experts_of_row * columns, columns),
               std::span(sums.squares).subspan(expert * columns, columns));
    ++sums.rows[expert];
  }
}

size_t ImportanceSums::UnseenExperts(std::string_view tensor) const {
  const auto found = sums_.find(tensor);
  if (found == sums_.end()) return 0;
  return static_cast<size_t>(std::ranges::count(found->second.rows, uint64_t{0}));
}

Status ImportanceSums::Write(AtomicFile file, const Origin& origin) const {
  GgufWriter writer;
  RL_RETURN_IF_ERROR(writer.Set("general.type", "imatrix"));
  RL_RETURN_IF_ERROR(writer.SetStrings("imatrix.datasets", std::vector<std::string>{origin.text}));
  RL_RETURN_IF_ERROR(writer.Set("imatrix.chunk_count", origin.chunks));
  RL_RETURN_IF_ERROR(writer.Set("imatrix.chunk_size", origin.chunk_tokens));
  for (const auto& [name, sums] : sums_) {
    const uint64_t experts = sums.rows.size();
    const std::array<uint64_t, 2> squares = {sums.squares.size() / experts, experts};
    const std::array<uint64_t, 2> counts = {1, experts};
    RL_RETURN_IF_ERROR(writer.AddTensor(name + ".in_sum2", DType::kF32, squares));
    RL_RETURN_IF_ERROR(writer.AddTensor(name + ".counts", DType::kF32, counts));
  }
  RL_ASSIGN_OR_RETURN(GgufOutput output, writer.Begin(std::move(file)));
  for (const auto& [name, sums] : sums_) {
    const std::vector<float> squares(sums.squares.begin(), sums.squares.end());
    const std::vector<float> rows(sums.rows.begin(), sums.rows.end());
    RL_RETURN_IF_ERROR(output.Append(std::as_bytes(std::span(squares))));
    RL_RETURN_IF_ERROR(output.Append(std::as_bytes(std::span(rows))));
  }
  return output.Finish();
}

}  // namespace rullama
