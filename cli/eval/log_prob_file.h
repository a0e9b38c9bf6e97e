// Files of log-probabilities: what a model thinks of the tokens that llama-perplexity counts, in
// the form in which llama-perplexity writes and reads them (--kl-divergence-base).
//
//   8  "_logits_"
//   4  tokens of a chunk
//   4  vocabulary
//   4  chunks
//      the tokens of all chunks, 4 bytes each
//      for each chunk and each of its counted tokens a row: the step and the lowest value as f32,
//      and for each token of the vocabulary a number of steps, 2 bytes each, their count made even
//
// Numbers are little endian. The tokens that count are those of the second half of a chunk but the
// first one of it. A log-probability is at most 16 below the largest one, or has no steps.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "core/base/mmap_file.h"
#include "core/base/status.h"
#include "core/gguf/atomic_file.h"

namespace rullama::cli {

struct LogProbHeader {
  int64_t context = 0;  // tokens of a chunk, at least 3
  int64_t vocabulary = 0;
  int64_t chunks = 0;
  std::vector<int32_t> tokens = {};  // of all chunks

  // The first token of a chunk that counts, and the number of those that count.
  [[nodiscard]] int64_t first_counted() const { return context / 2 + 1; }
  [[nodiscard]] int64_t counted() const { return context - first_counted(); }
  [[nodiscard]] std::span<const int32_t> Chunk(int64_t chunk) const;
};

// The log-probabilities of one row.
struct LogProbRow {
  float step = 0;
  float lowest = 0;
  std::span<const std::byte> steps = {};  // 2 bytes for each token

  [[nodiscard]] float At(size_t token) const;
};

// A file as bytes, which outlive it.
class LogProbRows {
 public:
  // All sizes are checked before anything is allocated. Error eval.file.
  static Result<LogProbRows> Parse(std::span<const std::byte> bytes);

  [[nodiscard]] const LogProbHeader& header() const { return header_; }
  // Error eval.file for a row whose values are no log-probabilities: not finite, or above 0.
  [[nodiscard]] Result<LogProbRow> Row(int64_t chunk, int64_t counted) const;

 private:
  LogProbHeader header_;
  std::span<const std::byte> rows_;
  size_t row_bytes_ = 0;
};

class LogProbFile {
 public:
  // Errors: eval.file, io.*.
  static Result<LogProbFile> Open(const std::filesystem::path& path);
  [[nodiscard]] const LogProbRows& rows() const { return rows_; }

 private:
  LogProbFile(MmapFile file, LogProbRows rows) : file_(std::move(file)), rows_(std::move(rows)) {}
  MmapFile file_;
  LogProbRows rows_;
};

// Writes such a file, which appears under its name once it is whole; the rows come in their order.
// Errors: those of AtomicFile; backend.nan for logits that are NaN or infinite at their largest.
class LogProbWriter {
 public:
  static Result<LogProbWriter> Create(const std::filesystem::path& path,
                                      const LogProbHeader& header);
  Status Append(std::span<const float> logits);
  Status Finish();

 private:
  explicit LogProbWriter(AtomicFile file) : file_(std::move(file)) {}

  AtomicFile file_;
  std::vector<uint16_t> row_;  // kept for its memory
};

}  // namespace rullama::cli
