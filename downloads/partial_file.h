// A file that is being downloaded. Next to it lies its state: which bytes are there, of which
// version. The state is written after the data, so it never promises bytes that are missing, even
// if the process is killed; sums are always computed from the bytes on disk.
//
// Thread safety: one thread at a time; others may read from fd().
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/base/status.h"
#include "downloads/byte_ranges.h"
#include "downloads/pull_plan.h"
#include "downloads/store_files.h"

namespace rullama::downloads {

class PartialFile {
 public:
  // Continues an earlier download that fits `file`, which outlives the object.
  static Result<PartialFile> Open(const PlannedFile& file);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const ByteRanges& done() const { return done_; }
  // The version that the server said the bytes are of; empty: it says none.
  [[nodiscard]] const std::string& etag() const { return etag_; }
  void set_etag(std::string etag) { etag_ = std::move(etag); }

  // Errors: pull.no_space, file.write.
  Status Write(uint64_t at, std::span<const char> bytes);
  Status SaveState();
  // Forgets all bytes.
  void Restart();
  // Gives the file its final name.
  Status Finish();
  // Removes it and its state.
  void Discard() { Remove(*file_); }
  static void Remove(const PlannedFile& file);

  // How many bytes of `file` an earlier pull has left.
  static uint64_t BytesLeftBy(const PlannedFile& file);

 private:
  PartialFile(const PlannedFile& file, OwnedFd fd) : file_(&file), fd_(std::move(fd)) {}

  const PlannedFile* file_;
  OwnedFd fd_;
  ByteRanges done_;
  std::string etag_;
};

// The state of a partial file as JSON, and back. Nothing for a text that is not the state of a file
// of `bytes` bytes.
struct PartialState {
  std::string etag;
  ByteRanges done;
};
std::string PartialStateText(const PartialState& state, uint64_t bytes);
std::optional<PartialState> ParsePartialState(std::string_view text, uint64_t bytes);

}  // namespace rullama::downloads
