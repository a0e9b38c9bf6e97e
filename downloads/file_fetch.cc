#include "downloads/file_fetch.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/base/printable.h"

namespace rullama::downloads {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kMinBytesForParts = 8 * kMiB;
constexpr uint64_t kMinPartBytes = 4 * kMiB;
constexpr uint64_t kMaxPartBytes = 64 * kMiB;
constexpr std::chrono::milliseconds kStep{100};  // between states, and reports of progress

std::optional<uint64_t> ReadCount(std::string_view text) {
  uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

struct FileFetch::Part {
  ByteRange range;
  uint64_t at = 0;
  bool ranged = false;  // a range is asked for
  bool dead = false;    // what comes is of no use any more
  HttpTransfer* transfer = nullptr;
  std::optional<Error> error = {};
};

std::optional<ContentRange> ParseContentRange(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  const size_t dash = text.find('-');
  const size_t slash = text.find('/');
  if (!text.starts_with(kUnit) || dash == text.npos || slash == text.npos || dash > slash) {
    return std::nullopt;
  }
  const auto first = ReadCount(text.substr(kUnit.size(), dash - kUnit.size()));
  const auto last = ReadCount(text.substr(dash + 1, slash - dash - 1));
  const std::string_view whole = text.substr(slash + 1);
  const auto size = ReadCount(whole);
  if (!first || !last || *last < *first || *last == UINT64_MAX || (!size && whole != "*")) {
    return std::nullopt;
  }
  if (size && *last >= *size) return std::nullopt;
  return ContentRange{{*first, *last + 1}, size};
}

FileFetch::FileFetch(PullConnection& connection, const PullPlan& plan, const PlannedFile& file,
                     PartialFile& partial)
    : connection_(connection),
      plan_(plan),
      file_(file),
      partial_(partial),
      follower_(std::make_unique<DigestFollower>(partial.fd(), file.digest.kind, file.bytes)),
      backoff_(connection.options.retries),
      most_done_(partial.done().bytes()) {
  if (file.bytes < kMinBytesForParts) return;
  most_parts_ = std::clamp<size_t>(static_cast<size_t>(connection.options.connections), 1,
                                   static_cast<size_t>(file.bytes / kMinPartBytes));
}

FileFetch::~FileFetch() {
  for (const auto& part : parts_) connection_.client.Drop(part->transfer);
}

Status FileFetch::Run() {
  const PullHooks& hooks = connection_.hooks;
  while (partial_.done().bytes() < file_.bytes) {
    Status stepped = hooks.cancelled() ? Status(tl::unexpected(CancelledPull())) : Step();
    if (!stepped) {
      // The bytes that are there are kept for the next pull; the first error counts.
      [[maybe_unused]] const Status ignored = partial_.SaveState();
      return stepped;
    }
  }
  RL_RETURN_IF_ERROR(partial_.SaveState());
  return CheckSum();
}

Status FileFetch::Step() {
  StartParts();
  connection_.client.Poll(kStep);
  Progressed();
  for (size_t i = 0; i < parts_.size();) {
    const HttpOutcome* outcome = HttpClient::OutcomeOf(*parts_[i]->transfer);
    if (outcome == nullptr) {
      ++i;
      continue;
    }
    const HttpOutcome taken = *outcome;
    const auto part = std::move(parts_[i]);
    parts_.erase(parts_.begin() + static_cast<ptrdiff_t>(i));
    connection_.client.Drop(part->transfer);
    RL_RETURN_IF_ERROR(Settle(*part, taken));
  }
  return OkStatus();
}

void FileFetch::Progressed() {
  follower_->Advance(partial_.done().Frontier());
  const uint64_t done = partial_.done().bytes();
  if (done > most_done_) {
    most_done_ = done;
    asked_again_ = false;
    backoff_.Progressed();
  }
  if (Clock::now() - saved_ < kStep) return;
  saved_ = Clock::now();
  // A state that cannot be written costs bytes, if the process is killed, and no more.
  [[maybe_unused]] const Status ignored = partial_.SaveState();
  if (connection_.hooks.on_progress) connection_.hooks.on_progress(file_, done);
}

Status FileFetch::CheckSum() {
  follower_->Advance(file_.bytes);
  while (!follower_->finished()) {
    if (!WaitUnless(connection_.hooks, std::chrono::milliseconds(2))) {
      return tl::unexpected(CancelledPull());
    }
  }
  const std::string found = follower_->Hex();
  if (found == file_.digest.hex) return OkStatus();
  partial_.Discard();
  return MakeError(ErrorKind::kIo, "pull.digest",
                   "the bytes of {} have the sum {}, expected {}; they were removed, run the same "
                   "command again",
                   ShownName(file_.name), found.empty() ? "(unreadable)" : found, file_.digest.hex);
}

std::optional<ByteRange> FileFetch::NextRange() const {
  ByteRanges taken = partial_.done();
  for (const auto& part : parts_) taken.Add(part->range);
  auto gap = taken.FirstGap(file_.bytes);
  if (gap && most_parts_ > 1 && !ranges_refused_) {
    const uint64_t size = std::clamp(file_.bytes / (4 * most_parts_), kMinPartBytes, kMaxPartBytes);
    gap->end = std::min(gap->end, gap->begin + size);
  }
  return gap;
}

void FileFetch::StartParts() {
  if (Clock::now() < not_before_) return;
  // The first answer tells whether the server knows ranges.
  const size_t most = ranges_known_ && !ranges_refused_ ? most_parts_ : 1;
  while (parts_.size() < most) {
    const auto range = NextRange();
    if (!range) return;
    StartPart(*range);
  }
}

void FileFetch::StartPart(ByteRange range) {
  auto part = std::make_unique<Part>();
  Part* const one = part.get();
  one->range = range;
  one->at = range.begin;
  one->ranged = range.begin > 0 || range.end < file_.bytes;
  // The plan checked its addresses.
  HttpRequest request{.url = *ParseUrl(file_.url), .authorization = connection_.authorization};
  if (one->ranged) {
    request.headers.push_back(fmt::format("Range: bytes={}-{}", range.begin, range.end - 1));
    if (!partial_.etag().empty()) request.headers.push_back("If-Range: " + partial_.etag());
  }
  request.on_head = [this, one](const HttpHead& head) { return TakeHead(*one, head); };
  request.on_body = [this, one](std::string_view bytes) { return TakeBody(*one, bytes); };
  one->transfer = connection_.client.Start(std::move(request));
  parts_.push_back(std::move(part));
}

bool FileFetch::Stop(Part& part, tl::unexpected<Error> error) {
  part.error = std::move(error).value();
  return false;
}

tl::unexpected<Error> FileFetch::WrongSize(uint64_t found) const {
  return MakeError(ErrorKind::kIo, "pull.size", "{} has {} bytes, expected {}; try later",
                   ShownName(file_.name), found, file_.bytes);
}

bool FileFetch::TakeHead(Part& part, const HttpHead& head) {
  if (part.dead) return false;
  const bool taken = head.status == 206 ? TakePartial(part, head) : TakeWhole(part, head);
  // A weak one ("W/...") says nothing about bytes.
  if (const std::string etag = head.Field("etag"); taken && etag.starts_with('"')) {
    partial_.set_etag(etag);
  }
  return taken;
}

bool FileFetch::TakeWhole(Part& part, const HttpHead& head) {
  if (head.status != 200) {
    return Stop(part, MakeError(ErrorKind::kIo, "pull.protocol",
                                "{}: the server answers {}, expected 200 or 206",
                                ShownName(file_.name), head.status));
  }
  const auto length = ReadCount(head.Field("content-length"));
  if (length && *length != file_.bytes) return Stop(part, WrongSize(*length));
  if (!part.ranged) return true;
  ranges_refused_ = true;
  BeginAnew(&part);
  part.range = {0, file_.bytes};
  part.at = 0;
  part.ranged = false;
  return true;
}

bool FileFetch::TakePartial(Part& part, const HttpHead& head) {
  const auto range = ParseContentRange(head.Field("content-range"));
  if (!part.ranged || !range || range->range.begin != part.range.begin ||
      range->range.end > part.range.end) {
    return Stop(part, MakeError(ErrorKind::kIo, "pull.protocol",
                                "{}: the server sends the range '{}', expected bytes {} to {}",
                                ShownName(file_.name), ShownName(head.Field("content-range")),
                                part.range.begin, part.range.end - 1));
  }
  if (range->whole && *range->whole != file_.bytes) return Stop(part, WrongSize(*range->whole));
  ranges_known_ = true;
  return true;
}

bool FileFetch::TakeBody(Part& part, std::string_view bytes) {
  if (part.dead) return false;
  if (bytes.size() > part.range.end - part.at) {
    return Stop(part, WrongSize(part.at + bytes.size()));
  }
  if (Status written = partial_.Write(part.at, bytes); !written) {
    return Stop(part, tl::unexpected(std::move(written).error()));
  }
  part.at += bytes.size();
  return true;
}

void FileFetch::BeginAnew(const Part* keep) {
  for (const auto& part : parts_) part->dead = part->dead || part.get() != keep;
  follower_.reset();
  partial_.Restart();
  follower_ = std::make_unique<DigestFollower>(partial_.fd(), file_.digest.kind, file_.bytes);
}

Status FileFetch::Settle(const Part& part, const HttpOutcome& outcome) {
  if (part.dead) return OkStatus();
  if (part.error) return tl::unexpected(*part.error);
  if (!outcome.succeeded()) return SettleFailure(outcome);
  if (part.at == part.range.end) return OkStatus();
  // Without its length the answer ended where the server thought that the file does.
  if (!part.ranged) return WrongSize(part.at);
  HttpOutcome cut = outcome;
  cut.failure = "the answer ended too early";
  return part.at > part.range.begin ? OkStatus() : SettleFailure(cut);
}

Status FileFetch::SettleFailure(const HttpOutcome& outcome) {
  const long status = outcome.failure.empty() && !outcome.refusal ? outcome.head.status : 0;
  if (status == 416 && !std::exchange(began_anew_, true)) {
    BeginAnew(nullptr);
    return OkStatus();
  }
  // The signature of the address has expired; the first address gives a new one.
  if (status == 403 && outcome.head.redirects > 0 && !std::exchange(asked_again_, true)) {
    return OkStatus();
  }
  if (status == 401 && plan_.renew && !std::exchange(asked_again_, true)) {
    RL_ASSIGN_OR_RETURN(connection_.authorization, plan_.renew());
    return OkStatus();
  }
  if (MayRetry(outcome)) {
    // Parts that fail together count as one failure.
    if (Clock::now() < not_before_) return OkStatus();
    if (const auto wait = backoff_.Next(outcome)) {
      not_before_ = Clock::now() + *wait;
      return OkStatus();
    }
  }
  return tl::unexpected(ErrorOfAnswer(outcome, ShownName(file_.name), plan_.page));
}

}  // namespace rullama::downloads
