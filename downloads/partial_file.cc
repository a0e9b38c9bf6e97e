#include "downloads/partial_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json_reader.h"

namespace rullama::downloads {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxStateBytes = 64 << 10;

fs::path StateFileOf(const PlannedFile& file) { return file.partial.string() + ".json"; }

std::optional<ByteRange> ReadRange(const nlohmann::json& json, uint64_t bytes) {
  if (!json.is_array() || json.size() != 2) return std::nullopt;
  if (!json[0].is_number_unsigned() || !json[1].is_number_unsigned()) return std::nullopt;
  const ByteRange range{json[0].get<uint64_t>(), json[1].get<uint64_t>()};
  if (range.begin >= range.end || range.end > bytes) return std::nullopt;
  return range;
}

}  // namespace

std::string PartialStateText(const PartialState& state, uint64_t bytes) {
  nlohmann::json ranges = nlohmann::json::array();
  for (const ByteRange& range : state.done.ranges()) ranges.push_back({range.begin, range.end});
  return nlohmann::json{{"etag", state.etag}, {"size", bytes}, {"ranges", ranges}}.dump(
      -1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

std::optional<PartialState> ParsePartialState(std::string_view text, uint64_t bytes) {
  const auto json = ReadJson(text, {.depth = 4});
  if (!json || !json->is_object()) return std::nullopt;
  const auto size = json->find("size");
  const auto etag = json->find("etag");
  const auto ranges = json->find("ranges");
  const bool complete = size != json->end() && etag != json->end() && ranges != json->end() &&
                        size->is_number_unsigned() && etag->is_string() && ranges->is_array();
  if (!complete || size->get<uint64_t>() != bytes) return std::nullopt;
  PartialState state{.etag = etag->get<std::string>(), .done = {}};
  for (const nlohmann::json& entry : *ranges) {
    const auto range = ReadRange(entry, bytes);
    if (!range) return std::nullopt;
    state.done.Add(*range);
  }
  return state;
}

Result<PartialFile> PartialFile::Open(const PlannedFile& file) {
  RL_RETURN_IF_ERROR(MakeFolders(file.partial.parent_path()));
  RL_ASSIGN_OR_RETURN(OwnedFd fd, OpenOwnFile(file.partial));
  PartialFile out(file, std::move(fd));
  auto state = ParsePartialState(ReadOwnFile(StateFileOf(file), kMaxStateBytes), file.bytes);
  struct stat status {};
  const bool fits = state && ::fstat(out.fd(), &status) == 0 &&
                    (state->done.ranges().empty() ||
                     state->done.ranges().back().end <= static_cast<uint64_t>(status.st_size));
  if (fits) {
    out.done_ = std::move(state->done);
    out.etag_ = std::move(state->etag);
  } else {
    out.Restart();
  }
  return out;
}

uint64_t PartialFile::BytesLeftBy(const PlannedFile& file) {
  const auto state = ParsePartialState(ReadOwnFile(StateFileOf(file), kMaxStateBytes), file.bytes);
  return state ? state->done.bytes() : 0;
}

Status PartialFile::Write(uint64_t at, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return WriteFailure(file_->partial, errno);
    const auto count = static_cast<size_t>(written);
    done_.Add({at, at + count});
    at += count;
    bytes = bytes.subspan(count);
  }
  return OkStatus();
}

Status PartialFile::SaveState() {
  return ReplaceFile(StateFileOf(*file_),
                     PartialStateText({.etag = etag_, .done = done_}, file_->bytes));
}

void PartialFile::Restart() {
  done_ = {};
  etag_.clear();
  ::unlink(StateFileOf(*file_).c_str());
  // A file that cannot be emptied is written over.
  [[maybe_unused]] const int ignored = ::ftruncate(fd_.get(), 0);
}

Status PartialFile::Finish() {
  if (file_->mode && ::fchmod(fd_.get(), *file_->mode) != 0) {
    return WriteFailure(file_->partial, errno);
  }
  if (::fsync(fd_.get()) != 0 || ::rename(file_->partial.c_str(), file_->blob.c_str()) != 0) {
    return WriteFailure(file_->blob, errno);
  }
  ::unlink(StateFileOf(*file_).c_str());
  return OkStatus();
}

void PartialFile::Remove(const PlannedFile& file) {
  ::unlink(StateFileOf(file).c_str());
  ::unlink(file.partial.c_str());
}

}  // namespace rullama::downloads
