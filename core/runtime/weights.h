// Sources of the bytes of a graph's constants.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/gguf/gguf.h"
#include "core/ir/graph.h"

namespace rullama {

// Thread safety: const methods from any thread.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // The bytes of a constant: rows [first_row, first_row + dim 0) of tensor `source`, checked
  // against the type. They live as long as the WeightSource, or until Release(). Errors:
  // model.missing_tensor, model.tensor_shape, io.read.
  [[nodiscard]] virtual Result<std::span<const std::byte>> Bytes(const Value& constant) const = 0;
  // Whether there are such bytes, which it does not read. Errors: those of Bytes().
  [[nodiscard]] virtual Status Check(const Value& constant) const {
    return Bytes(constant).map([](std::span<const std::byte>) {});
  }
  // Copies bytes of a constant from its byte `first` on. Errors: those of Bytes().
  [[nodiscard]] virtual Status Copy(const Value& constant, uint64_t first,
                                    std::span<std::byte> to) const;
  // Whether all bytes of a constant would take memory that Copy() does not need, so that rows of it
  // are better copied when a step looks them up.
  [[nodiscard]] virtual bool IsReadByRow(const Value& /*constant*/) const { return false; }
  // Says that these bytes, returned by Bytes(), have been copied: they are not used any more and
  // need not stay in memory.
  virtual void Release(std::span<const std::byte> /*bytes*/) const {}
};

// The tensors of a GGUF file, read in place in its mapping, and small f32 vectors that the model
// computes itself (rope frequency factors that a file does not contain). A constant of two
// dimensions may stand for a tensor of more, whose elements are not in blocks: the dimensions up to
// one of them are its rows, the others its columns.
class GgufWeights final : public WeightSource {
 public:
  // `file` must outlive this object.
  explicit GgufWeights(const GgufFile& file) : file_(file) {}
  // Constants whose names begin with `prefix` are the tensors of another file that have the rest of
  // the name. `file` must outlive this object.
  void AddFile(std::string prefix, const GgufFile& file);
  // Adds a tensor of `type` with these bytes. It hides a tensor of the file with the same name.
  void AddConstant(std::string name, TensorType type, std::vector<std::byte> bytes);
  // The same without a copy: `bytes` must outlive this object.
  void AddBorrowedConstant(std::string name, TensorType type, std::span<const std::byte> bytes);
  [[nodiscard]] Result<std::span<const std::byte>> Bytes(const Value& constant) const override;
  [[nodiscard]] Status Check(const Value& constant) const override;
  [[nodiscard]] Status Copy(const Value& constant, uint64_t first,
                            std::span<std::byte> to) const override;
  // True for a large tensor of a file that is read by ranges.
  [[nodiscard]] bool IsReadByRow(const Value& constant) const override;
  void Release(std::span<const std::byte> bytes) const override;

 private:
  struct OtherFile {
    std::string prefix;
    const GgufFile* file;
  };
  // Bytes of a tensor of a file, or of one that was added.
  struct Place {
    const GgufFile* file = nullptr;  // null: one that was added
    const TensorInfo* tensor = nullptr;
    std::span<const std::byte> added = {};
    uint64_t first = 0;
    uint64_t count = 0;
  };
  [[nodiscard]] Result<Place> Find(const Value& constant) const;
  struct AddedConstant {
    TensorType type;
    std::vector<std::byte> owned;  // empty if the bytes are borrowed
    std::span<const std::byte> borrowed;
    [[nodiscard]] std::span<const std::byte> bytes() const {
      return owned.empty() ? borrowed : std::span(owned);
    }
  };

  const GgufFile& file_;
  std::vector<OtherFile> others_;
  std::map<std::string, AddedConstant, std::less<>> constants_;
};

}  // namespace rullama
