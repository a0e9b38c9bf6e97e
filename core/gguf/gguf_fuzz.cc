// Any bytes give a result or an error, in memory and read by ranges alike; a file that parses can
// be read everywhere and written again.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/range_reader.h"
#include "core/gguf/dequantize.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"

namespace rullama {
namespace {

// Reads every byte that a view claims to cover, so that AddressSanitizer checks it.
uint64_t Touch(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (const std::byte byte : bytes) sum += std::to_integer<uint64_t>(byte);
  return sum;
}

uint64_t UseMetadata(const GgufFile& file) {
  uint64_t sum = 0;
  for (const GgufEntry& entry : file.metadata()) {
    RL_CHECK(file.Find(entry.key) == &entry.value);
    sum += Touch(entry.value.bytes) + Describe(entry.value).size();
    if (const auto strings = file.GetStrings(entry.key)) {
      for (const std::string_view text : *strings) sum += Touch(std::as_bytes(std::span(text)));
    }
    sum += file.GetU32(entry.key).has_value() ? 1 : 0;
    sum += file.GetU64(entry.key).has_value() ? 1 : 0;
    sum += file.GetF32(entry.key).has_value() ? 1 : 0;
    sum += file.GetBool(entry.key).has_value() ? 1 : 0;
    sum += file.GetString(entry.key).has_value() ? 1 : 0;
    sum += file.GetF32Array(entry.key).has_value() ? 1 : 0;
    sum += file.GetI32Array(entry.key).has_value() ? 1 : 0;
    sum += file.GetU32PerLayer(entry.key, 3).has_value() ? 1 : 0;
    sum += file.GetBoolPerLayer(entry.key, 3).has_value() ? 1 : 0;
  }
  return sum;
}

uint64_t UseTensors(const GgufFile& file) {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    RL_CHECK(file.FindTensor(tensor.name) == &tensor);
    const auto loaded = file.Load(tensor);
    RL_CHECK(loaded.has_value());
    const std::span<const std::byte> data = *loaded;
    sum += Touch(data);
    const DTypeInfo& info = InfoOf(tensor.dtype);
    std::vector<float> block(info.block_elements);
    const Status decoded = Dequantize(tensor.dtype, data.first(info.block_bytes), block);
    RL_CHECK(decoded.has_value() == CanDequantize(tensor.dtype));
  }
  return sum;
}

// The input as a file that is read by ranges.
class InputReader final : public RangeReader {
 public:
  explicit InputReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] uint64_t size() const override { return bytes_.size(); }
  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] Status Read(uint64_t offset, std::span<std::byte> to) const override {
    RL_CHECK(offset <= bytes_.size() && to.size() <= bytes_.size() - offset);
    std::ranges::copy(bytes_.subspan(static_cast<size_t>(offset), to.size()), to.begin());
    return OkStatus();
  }
  [[nodiscard]] Status CheckUnchanged() const override { return OkStatus(); }

 private:
  std::span<const std::byte> bytes_;
  std::string path_ = "input";
};

void CheckRoundTrip(const GgufFile& file) {
  GgufWriter writer;
  for (const GgufEntry& entry : file.metadata()) {
    // The reader accepts the alignment in any integer type, the writer only as u32.
    const bool refused = !writer.SetRaw(entry.key, entry.value).has_value();
    RL_CHECK(!refused || entry.key == "general.alignment");
    if (refused) return;
  }
  for (const TensorInfo& tensor : file.tensors()) {
    const auto dims = std::span(tensor.dims).first(tensor.rank);
    RL_CHECK(writer.AddTensor(tensor.name, tensor.dtype, dims).has_value());
  }
  auto bytes = writer.EncodeHeader();
  RL_CHECK(bytes.has_value());
  for (const TensorInfo& tensor : file.tensors()) {
    const auto data = file.data(tensor);
    bytes->insert(bytes->end(), data.begin(), data.end());
    bytes->resize((bytes->size() + file.alignment() - 1) / file.alignment() * file.alignment());
  }
  const auto copy = GgufFile::Parse(*bytes);
  RL_CHECK(copy.has_value());
  RL_CHECK(copy->metadata().size() == file.metadata().size());
  for (const TensorInfo& tensor : file.tensors()) {
    const TensorInfo* twin = copy->FindTensor(tensor.name);
    RL_CHECK(twin != nullptr && twin->dims == tensor.dims);
    RL_CHECK(std::ranges::equal(copy->data(*twin), file.data(tensor)));
  }
}

}  // namespace
}  // namespace rullama

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = rullama::GgufFile::Parse(bytes);
  const auto read = rullama::GgufFile::Read(std::make_unique<rullama::InputReader>(bytes));
  if (!file) {
    RL_CHECK(!file.error().id.empty() && !file.error().message.empty());
    RL_CHECK(!read && read.error().id == file.error().id);
    return 0;
  }
  const uint64_t sum = rullama::UseMetadata(*file) + rullama::UseTensors(*file);
  RL_CHECK(read.has_value());
  RL_CHECK(rullama::UseMetadata(*read) + rullama::UseTensors(*read) == sum);
  RL_CHECK(sum > 0 || file->metadata().empty());
  rullama::CheckRoundTrip(*file);
  return 0;
}
