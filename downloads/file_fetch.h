// Fetches one file: over several connections where the server knows ranges, again after failures,
// and from where an earlier pull has stopped. The sum is computed meanwhile.
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "downloads/answers.h"
#include "downloads/digest_follower.h"
#include "downloads/http_client.h"
#include "downloads/partial_file.h"
#include "downloads/pull_plan.h"

namespace rullama::downloads {

// The connection of a pull to its server. `authorization` may be renewed on the way.
struct PullConnection {
  HttpClient& client;
  const PullOptions& options;
  const PullHooks& hooks;
  std::string authorization = {};
};

class FileFetch {
 public:
  // All arguments outlive the object.
  FileFetch(PullConnection& connection, const PullPlan& plan, const PlannedFile& file,
            PartialFile& partial);
  ~FileFetch();
  FileFetch(const FileFetch&) = delete;
  FileFetch& operator=(const FileFetch&) = delete;

  // Gets all bytes and checks their sum. The state of the partial file is written whatever
  // happens. Errors: run.cancelled, pull.*, file.write.
  Status Run();

 private:
  struct Part;

  Status Step();
  Status CheckSum();
  void Progressed();
  void StartParts();
  void StartPart(ByteRange range);
  [[nodiscard]] std::optional<ByteRange> NextRange() const;
  bool TakeHead(Part& part, const HttpHead& head);
  bool TakeWhole(Part& part, const HttpHead& head);
  bool TakePartial(Part& part, const HttpHead& head);
  bool TakeBody(Part& part, std::string_view bytes);
  bool Stop(Part& part, tl::unexpected<Error> error);
  Status Settle(const Part& part, const HttpOutcome& outcome);
  Status SettleFailure(const HttpOutcome& outcome);
  void BeginAnew(const Part* keep);
  [[nodiscard]] tl::unexpected<Error> WrongSize(uint64_t found) const;

  PullConnection& connection_;
  const PullPlan& plan_;
  const PlannedFile& file_;
  PartialFile& partial_;
  std::unique_ptr<DigestFollower> follower_;
  std::vector<std::unique_ptr<Part>> parts_;
  Backoff backoff_;
  Clock::time_point not_before_ = Clock::now();
  Clock::time_point saved_ = Clock::now();
  uint64_t most_done_ = 0;
  size_t most_parts_ = 1;      // as many as the size and the options allow
  bool ranges_known_ = false;  // the server has answered with a range
  bool ranges_refused_ = false;
  bool began_anew_ = false;   // after 416
  bool asked_again_ = false;  // after 401 or 403, since the last progress
};

// The range of a field "Content-Range: bytes 0-9/100", and the size of the whole, if it is given.
struct ContentRange {
  ByteRange range;
  std::optional<uint64_t> whole;
};
std::optional<ContentRange> ParseContentRange(std::string_view text);

}  // namespace rullama::downloads
