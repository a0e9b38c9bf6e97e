// The inputs of a step as bytes, one after another. Memory is reused from step to step. Internal to
// samplers; belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace rullama::samplers {

struct NamedBytes {
  std::string_view name;
  std::span<const std::byte> bytes;  // valid until the next Clear()
};

class InputBytes {
 public:
  void Clear() { inputs_.clear(); }

  // Adds an input of `count` elements, which have `value` until the caller sets them.
  template <typename T>
  std::span<T> Add(std::string_view name, size_t count, T value) {
    if (memory_.size() == inputs_.size()) memory_.emplace_back();
    std::vector<std::byte>& bytes = memory_[inputs_.size()];
    bytes.resize(count * sizeof(T));
    inputs_.push_back({name, bytes});
    const std::span<T> elements(reinterpret_cast<T*>(bytes.data()), count);
    std::ranges::fill(elements, value);
    return elements;
  }

  // Adds an input with the columns that `columns_of` gives for each row, a std::array.
  template <typename Row, typename ColumnsOf>
  void AddRows(std::string_view name, std::span<const Row> rows, ColumnsOf columns_of) {
    using Columns = std::invoke_result_t<ColumnsOf, const Row&>;
    constexpr size_t kColumns = std::tuple_size_v<Columns>;
    const auto all = Add(name, rows.size() * kColumns, typename Columns::value_type());
    for (size_t i = 0; i < rows.size(); ++i) {
      std::ranges::copy(columns_of(rows[i]), all.subspan(i * kColumns).begin());
    }
  }

  [[nodiscard]] std::span<const NamedBytes> inputs() const { return inputs_; }

 private:
  std::vector<std::vector<std::byte>> memory_;  // of the inputs in their order
  std::vector<NamedBytes> inputs_;
};

}  // namespace rullama::samplers
