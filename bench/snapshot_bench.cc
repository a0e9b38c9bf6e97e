// Measures how much faster a slot is restored from a snapshot than its tokens are read, and checks
// that both slots hold the same bytes and continue alike.
//
//   snapshot_bench MODEL BACKEND [TOKENS [ROUNDS [KEY=VALUE...]]]
//
// Prints the seconds of each round for reading the tokens, saving the slot and restoring it into
// another one, and the medians.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/bench_session.h"
#include "core/runtime/snapshot.h"
#include "engine/model_session.h"
#include "engine/scheduling/batch_session.h"

namespace rullama::bench {
namespace {

constexpr int32_t kRead = 0;       // the slot whose tokens are read
constexpr int32_t kRestored = 1;   // the slot that gets its snapshot
constexpr int64_t kContinued = 8;  // tokens that both slots write afterwards

double SecondsOf(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<int32_t> Tokens(int64_t count, int64_t vocabulary) {
  constexpr int64_t kStride = 7919;  // prime: the tokens differ
  std::vector<int32_t> tokens;
  for (int64_t i = 1; i <= count; ++i) {
    tokens.push_back(static_cast<int32_t>(i * kStride % vocabulary));
  }
  return tokens;
}

// The most likely tokens after the rows of a slot, with the logarithms of their probabilities.
std::vector<LogprobStep> Continue(BatchSession& batch, int32_t slot) {
  RowRequest row{.slot = slot, .token = 1, .sampling = {.temperature = 0}, .top_logprobs = 2};
  std::vector<LogprobStep> steps;
  for (int64_t i = 0; i < kContinued; ++i) {
    const RowResult& result = Must(batch.Decode(std::span(&row, 1))).front();
    steps.push_back(result.logprobs);
    row.token = Must(result.token);
  }
  return steps;
}

class SnapshotBench {
 public:
  SnapshotBench(ModelSession& opened, int64_t tokens)
      : session_(opened.session()),
        batch_(session_, opened.graphs(), opened.model().facts().vocabulary),
        chunk_(static_cast<size_t>(opened.chunk())),
        tokens_(Tokens(tokens, opened.model().facts().vocabulary)) {}

  // The seconds of reading, saving and restoring.
  std::array<double, 3> Round() {
    const auto position = static_cast<int32_t>(tokens_.size());
    session_.ForgetSlot(kRead);
    session_.ForgetSlot(kRestored);
    const double read = SecondsOf([this] { Read(); });
    std::optional<Snapshot> snapshot;
    const double saved = SecondsOf([&] { snapshot = Must(session_.Save(kRead, position)); });
    const double restored = SecondsOf([&] { Must(session_.Restore(kRestored, *snapshot)); });
    const Snapshot again = Must(session_.Save(kRestored, position));
    const bool same = std::ranges::equal(snapshot->data(), again.data());
    if (!same || Continue(batch_, kRead) != Continue(batch_, kRestored)) {
      fmt::print(stderr, "the restored slot differs from the one that read the tokens\n");
      std::exit(1);
    }
    bytes_ = snapshot->bytes();
    return {read, saved, restored};
  }

  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  void Read() {
    for (size_t done = 0; done < tokens_.size(); done += chunk_) {
      const size_t count = std::min(chunk_, tokens_.size() - done);
      Must(batch_.Read(kRead, std::span(tokens_).subspan(done, count), {}));
    }
  }

  Session& session_;
  BatchSession batch_;
  size_t chunk_;
  std::vector<int32_t> tokens_;
  uint64_t bytes_ = 0;
};

int Run(EngineOptions options, int64_t tokens, int64_t rounds) {
  options.settings.push_back({"context.capacity", std::to_string(tokens + kContinued)});
  const auto opened = OpenSession(options, 2);
  SnapshotBench bench(*opened, tokens);
  std::array<std::vector<double>, 3> seconds;
  for (int64_t i = 0; i < rounds; ++i) {
    const auto round = bench.Round();
    fmt::print("read {:.3f} s, saved {:.4f} s, restored {:.4f} s\n", round[0], round[1], round[2]);
    for (size_t j = 0; j < round.size(); ++j) seconds[j].push_back(round[j]);
  }
  const auto median = [&](size_t j) { return MedianOf(seconds[j]); };
  fmt::print(
      "medians for {} tokens: read {:.3f} s, saved {:.4f} s, restored {:.4f} s ({:.1f} MiB); "
      "restoring is {:.0f} times as fast as reading, same bytes\n",
      tokens, median(0), median(1), median(2),
      static_cast<double>(bench.bytes()) / static_cast<double>(1 << 20), median(0) / median(2));
  return 0;
}

}  // namespace
}  // namespace rullama::bench

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) {
    fmt::print(stderr, "usage: snapshot_bench MODEL BACKEND [TOKENS [ROUNDS [KEY=VALUE...]]]\n");
    return 2;
  }
  using rullama::bench::NumberOr;
  return rullama::bench::Run(rullama::bench::OptionsOf(words, 4), NumberOr(words, 2, 4096),
                             NumberOr(words, 3, 3));
}
