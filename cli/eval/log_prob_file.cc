#include "cli/eval/log_prob_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/checked_math.h"

namespace rullama::cli {
namespace {

constexpr std::string_view kMagic = "_logits_";
constexpr size_t kHeaderBytes = 20;
constexpr size_t kValuesBeforeSteps = 4;  // of 2 bytes: the step and the lowest value
constexpr float kRange = 16;              // below the largest one
constexpr float kMostSteps = 65'535;
constexpr double kRounding = 1e-3;    // by which the largest log-probability may be above 0
constexpr int64_t kFewestTokens = 3;  // of a chunk, so that one counts

template <typename T>
T ReadAt(std::span<const std::byte> bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// The 16-bit values of a row; their count is even, as in the file.
constexpr uint64_t ValuesOfRow(uint64_t vocabulary) {
  return kValuesBeforeSteps + (vocabulary + 1) / 2 * 2;
}

tl::unexpected<Error> Damaged(std::string_view what) {
  return MakeError(ErrorKind::kUsage, "eval.file",
                   "the file of log-probabilities {}; write it again with --kl-divergence-base",
                   what);
}

// The bytes of the rows; nothing if they are more than 64 bits can count.
std::optional<uint64_t> BytesOfRows(const LogProbHeader& header) {
  const auto rows =
      CheckedMul(static_cast<uint64_t>(header.chunks), static_cast<uint64_t>(header.counted()));
  const uint64_t row = ValuesOfRow(static_cast<uint64_t>(header.vocabulary)) * sizeof(uint16_t);
  return rows ? CheckedMul(*rows, row) : std::nullopt;
}

}  // namespace

std::span<const int32_t> LogProbHeader::Chunk(int64_t chunk) const {
  return std::span(tokens).subspan(static_cast<size_t>(chunk * context),
                                   static_cast<size_t>(context));
}

float LogProbRow::At(size_t token) const {
  return step * static_cast<float>(ReadAt<uint16_t>(steps, token * sizeof(uint16_t))) + lowest;
}

Result<LogProbRows> LogProbRows::Parse(std::span<const std::byte> bytes) {
  const bool is_one =
      bytes.size() >= kHeaderBytes && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
  if (!is_one) return Damaged("does not begin with \"_logits_\" and its sizes");
  LogProbRows out;
  LogProbHeader& header = out.header_;
  header.context = ReadAt<int32_t>(bytes, 8);
  header.vocabulary = ReadAt<int32_t>(bytes, 12);
  header.chunks = ReadAt<int32_t>(bytes, 16);
  if (header.context < kFewestTokens || header.vocabulary < 1 || header.chunks < 1) {
    return Damaged(fmt::format("has {} chunks of {} tokens and a vocabulary of {}", header.chunks,
                               header.context, header.vocabulary));
  }
  const auto tokens = static_cast<uint64_t>(header.chunks * header.context);  // below 2^62
  const auto rows = BytesOfRows(header);
  const auto before = CheckedAdd<uint64_t>(kHeaderBytes, tokens * sizeof(int32_t));
  const auto all = rows && before ? CheckedAdd(*before, *rows) : std::nullopt;
  if (all != bytes.size()) return Damaged("has another length than its sizes say");
  header.tokens.resize(tokens);
  std::memcpy(header.tokens.data(), bytes.data() + kHeaderBytes, tokens * sizeof(int32_t));
  const auto is_token = [&header](int32_t id) { return id >= 0 && id < header.vocabulary; };
  if (!std::ranges::all_of(header.tokens, is_token)) {
    return Damaged("has a token outside its vocabulary");
  }
  out.rows_ = bytes.subspan(*before);
  out.row_bytes_ = ValuesOfRow(static_cast<uint64_t>(header.vocabulary)) * sizeof(uint16_t);
  return out;
}

Result<LogProbRow> LogProbRows::Row(int64_t chunk, int64_t counted) const {
  const auto index = static_cast<size_t>(chunk * header_.counted() + counted);
  const std::span<const std::byte> row = rows_.subspan(index * row_bytes_, row_bytes_);
  const LogProbRow out{.step = ReadAt<float>(row, 0),
                       .lowest = ReadAt<float>(row, sizeof(float)),
                       .steps = row.subspan(kValuesBeforeSteps * sizeof(uint16_t))};
  const double most = double{out.lowest} + double{kMostSteps} * double{out.step};
  if (std::isfinite(out.lowest) && out.step >= 0 && most <= kRounding) return out;
  return Damaged(fmt::format("has a row from {} in steps of {}, expected log-probabilities",
                             out.lowest, out.step));
}

Result<LogProbFile> LogProbFile::Open(const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(MmapFile file, MmapFile::Open(path.string()));
  auto rows = LogProbRows::Parse(file.bytes());
  if (!rows) {
    return tl::unexpected(std::move(rows).error().WithContext(fmt::format("'{}'", path.string())));
  }
  return LogProbFile(std::move(file), *std::move(rows));
}

Result<LogProbWriter> LogProbWriter::Create(const std::filesystem::path& path,
                                            const LogProbHeader& header) {
  RL_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RL_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(kMagic))));
  for (const int64_t number : {header.context, header.vocabulary, header.chunks}) {
    const auto value = static_cast<int32_t>(number);
    RL_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(&value, 1))));
  }
  RL_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(header.tokens))));
  return LogProbWriter(std::move(file));
}

Status LogProbWriter::Append(std::span<const float> logits) {
  const float max = *std::ranges::max_element(logits);
  const float min = std::max(*std::ranges::min_element(logits), max - kRange);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - max);
  if (!std::isfinite(max) || !std::isfinite(sum)) {
    return MakeError(ErrorKind::kRuntime, "backend.nan", "the logits of a token are not finite");
  }
  const float step = (max - min) / kMostSteps;
  const auto lowest = static_cast<float>(min - max - std::log(sum));
  row_.assign(ValuesOfRow(logits.size()), 0);
  std::memcpy(row_.data(), &step, sizeof(step));
  std::memcpy(row_.data() + 2, &lowest, sizeof(lowest));
  for (size_t i = 0; i < logits.size() && step > 0; ++i) {
    if (logits[i] <= min) continue;
    row_[kValuesBeforeSteps + i] =
        static_cast<uint16_t>(std::min(std::round((logits[i] - min) / step), kMostSteps));
  }
  return file_.Append(std::as_bytes(std::span(row_)));
}

Status LogProbWriter::Finish() { return file_.Commit(); }

}  // namespace rullama::cli
