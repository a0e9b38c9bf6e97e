#include "core/runtime/slot_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <concepts>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/base/checked_math.h"
#include "core/gguf/atomic_file.h"

namespace rullama {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

constexpr std::string_view kSlotFileMagic = "rullslot";
constexpr uint32_t kSlotFileVersion = 1;
constexpr size_t kPreludeBytes = 8 + 4 + 4 + 8;
constexpr uint32_t kMaxFingerprints = 64;
constexpr uint32_t kMaxNameBytes = 256;
constexpr uint64_t kSumBytes = sizeof(Sha256Digest);

tl::unexpected<Error> Corrupt(std::string_view what) {
  return MakeError(ErrorKind::kModelFile, "slot.corrupt",
                   "the file of a slot is damaged or of another format: {}; remove it", what);
}

tl::unexpected<Error> CannotRead(const std::filesystem::path& path) {
  return MakeError(ErrorKind::kIo, "io.open", "cannot read '{}': {}", path.string(),
                   std::strerror(errno));
}

// ---- writing ---------------------------------------------------------------------------------

class HeaderWriter {
 public:
  template <std::integral T>
  void Number(T value) {
    Bytes(std::as_bytes(std::span(&value, 1)));
  }
  void Text(std::string_view text) {
    Number(static_cast<uint32_t>(text.size()));
    Bytes(std::as_bytes(std::span(text)));
  }
  void Bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// The snapshots in the order of the file.
std::vector<const Snapshot*> SnapshotsOf(const StoredSlot& slot) {
  std::vector<const Snapshot*> snapshots = {slot.all.get()};
  for (const auto& rings : slot.rings) snapshots.push_back(rings.get());
  return snapshots;
}

uint64_t RowBytesOf(const StoredSlot& slot) {
  uint64_t bytes = 0;
  for (const Snapshot* snapshot : SnapshotsOf(slot)) bytes += snapshot->bytes();
  return bytes;
}

void WriteInfo(const SnapshotInfo& info, HeaderWriter& out) {
  out.Number(static_cast<uint32_t>(info.position));
  out.Number(static_cast<uint32_t>(info.written));
  out.Number(static_cast<uint32_t>(info.parts.size()));
  for (const SnapshotPart& part : info.parts) {
    out.Text(part.state);
    out.Text(part.row_type);
    out.Number(part.row_bytes);
    out.Number(static_cast<uint64_t>(part.state_rows));
    out.Number(static_cast<uint64_t>(part.rows));
  }
}

std::vector<std::byte> HeaderOf(const StoredSlot& slot) {
  HeaderWriter out;
  out.Bytes(std::as_bytes(std::span(kSlotFileMagic)));
  out.Number(kSlotFileVersion);
  const size_t sizes = out.bytes().size();
  out.Number(uint32_t{0});  // of the header
  out.Number(uint64_t{0});  // of the file
  out.Number(static_cast<uint32_t>(slot.fingerprints.size()));
  out.Bytes(std::as_bytes(std::span(slot.fingerprints)));
  out.Bytes(std::as_bytes(std::span(slot.owner)));
  out.Number(static_cast<uint32_t>(slot.chunked));
  out.Number(static_cast<uint32_t>(slot.tokens.size()));
  out.Bytes(std::as_bytes(std::span(slot.tokens)));
  const std::vector<const Snapshot*> snapshots = SnapshotsOf(slot);
  out.Number(static_cast<uint32_t>(snapshots.size()));
  for (const Snapshot* snapshot : snapshots) WriteInfo(snapshot->info(), out);
  std::vector<std::byte>& bytes = out.bytes();
  const auto header_bytes = static_cast<uint32_t>(bytes.size());
  const uint64_t file_bytes = bytes.size() + RowBytesOf(slot) + kSumBytes;
  std::memcpy(bytes.data() + sizes, &header_bytes, sizeof(header_bytes));
  std::memcpy(bytes.data() + sizes + sizeof(header_bytes), &file_bytes, sizeof(file_bytes));
  return std::move(bytes);
}

Status CheckWhole(const StoredSlot& slot) {
  const auto tokens = std::ssize(slot.tokens);
  const bool whole = slot.all && slot.all->complete() && tokens > 0 &&
                     slot.all->position() == tokens && slot.chunked <= tokens;
  const bool rings = std::ranges::all_of(slot.rings, [&slot](const auto& one) {
    return !one->complete() && one->position() <= slot.chunked;
  });
  if (whole && rings) return OkStatus();
  return MakeError(ErrorKind::kRuntime, "session.internal",
                   "the snapshots of a slot do not belong to its {} tokens", tokens);
}

// The file before it has its name: only its owner may read it.
Result<AtomicFile> CreatePrivate(const std::filesystem::path& path) {
  std::error_code code;
  const auto type = std::filesystem::symlink_status(path, code).type();
  if (type != std::filesystem::file_type::not_found &&
      type != std::filesystem::file_type::regular) {
    return MakeError(ErrorKind::kUsage, "slot.file",
                     "cannot write to '{}': it is not a plain file; choose another name",
                     path.filename().string());
  }
  return AtomicFile::Create(path, AtomicFile::Temporary::kPrivate);
}

// ---- reading ---------------------------------------------------------------------------------

// Reads the members of a header one after another. After the first one that does not fit, all are
// empty.
class HeaderReader {
 public:
  explicit HeaderReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool empty() const { return rest_.empty(); }

  std::span<const std::byte> Bytes(uint64_t count) {
    ok_ = ok_ && count <= rest_.size();
    if (!ok_) return {};
    const auto bytes = rest_.first(static_cast<size_t>(count));
    rest_ = rest_.subspan(static_cast<size_t>(count));
    return bytes;
  }
  template <std::unsigned_integral T>
  T Number() {
    T value = 0;
    const auto bytes = Bytes(sizeof(T));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  // A number of at most `most`.
  template <std::signed_integral T>
  T Limited(std::unsigned_integral auto value, T most) {
    ok_ = ok_ && std::cmp_less_equal(value, most);
    return ok_ ? static_cast<T>(value) : 0;
  }
  std::string Text() {
    const auto bytes = Bytes(Limited<int64_t>(Number<uint32_t>(), kMaxNameBytes));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // A list whose bytes are here. Nothing is allocated before they are.
  template <typename T>
  std::vector<T> List(uint64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto bytes = Bytes(CheckedMul<uint64_t>(count, sizeof(T)).value_or(~uint64_t{0}));
    std::vector<T> list(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(list.data(), bytes.data(), bytes.size());
    return list;
  }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

// Reads bytes of a file at an offset, which are there.
using ReadAt = std::function<Status(uint64_t offset, std::span<std::byte> out)>;

struct Sizes {
  uint64_t header = 0;
  uint64_t file = 0;
};

struct ParsedHeader {
  SlotFileHeader header;
  std::vector<SnapshotInfo> snapshots;
};

Result<Sizes> ReadSizes(uint64_t file_bytes, const ReadAt& read) {
  std::array<std::byte, kPreludeBytes> bytes = {};
  if (file_bytes < bytes.size() + kSumBytes) return Corrupt("it is too short");
  RL_RETURN_IF_ERROR(read(0, bytes));
  HeaderReader in(bytes);
  const auto magic = in.Bytes(kSlotFileMagic.size());
  if (!std::ranges::equal(magic, std::as_bytes(std::span(kSlotFileMagic)))) {
    return Corrupt("it does not begin with 'rullslot'");
  }
  if (in.Number<uint32_t>() != kSlotFileVersion) return Corrupt("it has another version");
  const Sizes sizes{.header = in.Number<uint32_t>(), .file = in.Number<uint64_t>()};
  if (sizes.file != file_bytes) return Corrupt("its size is not the one it had when written");
  if (sizes.header < bytes.size() || sizes.header > file_bytes - kSumBytes) {
    return Corrupt("its header is longer than the file");
  }
  return sizes;
}

SnapshotInfo ReadInfo(HeaderReader& in, bool first) {
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
  SnapshotInfo info{.content = first ? SnapshotContent::kAll : SnapshotContent::kRings};
  info.position = in.Limited(in.Number<uint32_t>(), std::numeric_limits<int32_t>::max());
  info.written = in.Limited(in.Number<uint32_t>(), std::numeric_limits<int32_t>::max());
  const auto parts = in.Number<uint32_t>();
  for (uint32_t i = 0; i < parts && in.ok(); ++i) {
    SnapshotPart part{.state = in.Text(), .row_type = in.Text()};
    part.row_bytes = in.Number<uint64_t>();
    part.state_rows = in.Limited(in.Number<uint64_t>(), kMostRows);
    part.rows = in.Limited(in.Number<uint64_t>(), part.state_rows);
    info.parts.push_back(std::move(part));
  }
  return info;
}

Status CheckPositions(const ParsedHeader& parsed) {
  const int64_t tokens = std::ssize(parsed.header.tokens);
  int64_t last = 0;
  for (size_t i = 0; i < parsed.snapshots.size(); ++i) {
    const SnapshotInfo& info = parsed.snapshots[i];
    const bool in_place = i == 0 ? info.position == tokens
                                 : info.position > last && info.position <= parsed.header.chunked;
    if (!in_place) return Corrupt("a snapshot is at a position that the tokens do not have");
    if (info.written != info.position && int64_t{info.written} != int64_t{info.position} + 1) {
      return Corrupt("a snapshot has more rows than tokens");
    }
    if (i > 0) last = info.position;
  }
  return OkStatus();
}

// The bytes of all rows; nothing if they are more than can be counted.
std::optional<uint64_t> RowBytesOf(const std::vector<SnapshotInfo>& snapshots) {
  uint64_t sum = 0;
  for (const SnapshotInfo& info : snapshots) {
    for (const SnapshotPart& part : info.parts) {
      const auto bytes = CheckedMul(static_cast<uint64_t>(part.rows), part.row_bytes);
      const auto next = bytes ? CheckedAdd(sum, *bytes) : std::nullopt;
      if (!next) return std::nullopt;
      sum = *next;
    }
  }
  return sum;
}

// `bytes`: the whole header.
Result<ParsedHeader> ParseHeader(std::span<const std::byte> bytes, uint64_t file_bytes) {
  HeaderReader in(bytes);
  in.Bytes(kPreludeBytes);
  ParsedHeader parsed;
  SlotFileHeader& header = parsed.header;
  header.fingerprints = in.List<ModelFingerprint>(
      static_cast<uint64_t>(in.Limited<int64_t>(in.Number<uint32_t>(), kMaxFingerprints)));
  const auto owner = in.List<uint8_t>(header.owner.size());
  std::ranges::copy(owner, header.owner.begin());
  const auto chunked = in.Number<uint32_t>();
  const auto tokens = in.Number<uint32_t>();
  header.chunked = in.Limited<int64_t>(chunked, tokens);
  header.tokens = in.List<int32_t>(tokens);
  const auto snapshots = in.Number<uint32_t>();
  for (uint32_t i = 0; i < snapshots && in.ok(); ++i) {
    parsed.snapshots.push_back(ReadInfo(in, i == 0));
  }
  if (!in.ok() || !in.empty()) return Corrupt("its header does not have the bytes that it names");
  if (header.tokens.empty() || parsed.snapshots.empty()) return Corrupt("it holds nothing");
  RL_RETURN_IF_ERROR(CheckPositions(parsed));
  if (RowBytesOf(parsed.snapshots) != file_bytes - bytes.size() - kSumBytes) {
    return Corrupt("its rows are not as many as its header names");
  }
  return parsed;
}

Result<std::vector<std::byte>> ReadHeaderBytes(uint64_t file_bytes, const ReadAt& read) {
  RL_ASSIGN_OR_RETURN(const Sizes sizes, ReadSizes(file_bytes, read));
  std::vector<std::byte> bytes(static_cast<size_t>(sizes.header));
  RL_RETURN_IF_ERROR(read(0, bytes));
  return bytes;
}

Result<StoredSlot> ReadSlot(uint64_t file_bytes, const ReadAt& read) {
  RL_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadHeaderBytes(file_bytes, read));
  RL_ASSIGN_OR_RETURN(ParsedHeader parsed, ParseHeader(bytes, file_bytes));
  StoredSlot slot{std::move(parsed.header), {}, {}};
  Sha256Stream sum;
  sum.Add(bytes);
  uint64_t offset = bytes.size();
  for (SnapshotInfo& info : parsed.snapshots) {
    RL_ASSIGN_OR_RETURN(Snapshot snapshot, Snapshot::Allocate(std::move(info)));
    RL_RETURN_IF_ERROR(read(offset, snapshot.data()));
    sum.Add(snapshot.data());
    offset += snapshot.bytes();
    auto shared = std::make_shared<Snapshot>(std::move(snapshot));
    if (shared->complete()) {
      slot.all = std::move(shared);
    } else {
      slot.rings.push_back(std::move(shared));
    }
  }
  Sha256Digest stored = {};
  RL_RETURN_IF_ERROR(read(offset, std::as_writable_bytes(std::span(stored))));
  if (stored != sum.Finish()) return Corrupt("its sum does not agree with its content");
  return slot;
}

// A plain file that is open for reading.
class OpenFile {
 public:
  static Result<OpenFile> Open(const std::filesystem::path& path) {
    OpenFile file(path);
    file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file.fd_ < 0 && errno != ENOENT && errno != ELOOP) return CannotRead(path);
    struct stat info {};
    if (file.fd_ < 0 || ::fstat(file.fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
      return MakeError(ErrorKind::kIo, "slot.not_found", "there is no file '{}'",
                       path.filename().string());
    }
    file.bytes_ = static_cast<uint64_t>(info.st_size);
    return file;
  }
  OpenFile(OpenFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] Status Read(uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
      const ssize_t count = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return CannotRead(path_);
      if (count == 0) return Corrupt("it got shorter while it was read");
      out = out.subspan(static_cast<size_t>(count));
      offset += static_cast<uint64_t>(count);
    }
    return OkStatus();
  }
  [[nodiscard]] ReadAt reader() const {
    return [this](uint64_t offset, std::span<std::byte> out) { return Read(offset, out); };
  }

 private:
  explicit OpenFile(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
};

}  // namespace

SlotFileWriter::SlotFileWriter(const StoredSlot& slot)
    : slot_(slot),
      header_(HeaderOf(slot)),
      file_bytes_(header_.size() + RowBytesOf(slot) + kSumBytes) {}

Status SlotFileWriter::Write(const std::filesystem::path& path) const {
  RL_RETURN_IF_ERROR(CheckWhole(slot_));
  RL_ASSIGN_OR_RETURN(AtomicFile file, CreatePrivate(path));
  Sha256Stream sum;
  const auto append = [&](std::span<const std::byte> bytes) {
    sum.Add(bytes);
    return file.Append(bytes);
  };
  RL_RETURN_IF_ERROR(append(header_));
  for (const Snapshot* snapshot : SnapshotsOf(slot_)) RL_RETURN_IF_ERROR(append(snapshot->data()));
  const Sha256Digest digest = sum.Finish();
  RL_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(digest))));
  return file.Commit();
}

Result<StoredSlot> ReadSlotFile(const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path));
  return ReadSlot(file.bytes(), file.reader());
}

Result<StoredSlot> ParseSlotFile(std::span<const std::byte> bytes) {
  return ReadSlot(bytes.size(), [bytes](uint64_t offset, std::span<std::byte> out) {
    std::ranges::copy(bytes.subspan(static_cast<size_t>(offset), out.size()), out.begin());
    return OkStatus();
  });
}

Result<SlotFileHeader> ReadSlotFileHeader(const std::filesystem::path& path) {
  RL_ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path));
  RL_ASSIGN_OR_RETURN(const auto bytes, ReadHeaderBytes(file.bytes(), file.reader()));
  RL_ASSIGN_OR_RETURN(ParsedHeader parsed, ParseHeader(bytes, file.bytes()));
  return std::move(parsed.header);
}

}  // namespace rullama
