#include "engine/texts_in_flight.h"

#include <deque>
#include <utility>

namespace rullama {
namespace {

// A text that was handed over, and that is cancelled when `stop` is requested.
struct TextInFlight {
  struct Cancel {
    AnswerChannel* channel;
    void operator()() const { channel->Cancel(); }
  };

  TextInFlight(size_t number, int64_t its_rows, std::shared_ptr<AnswerChannel> its_channel,
               const std::stop_token& stop)
      : text(number),
        rows(its_rows),
        channel(std::move(its_channel)),
        cancel(stop, Cancel{channel.get()}) {}

  size_t text;
  int64_t rows;  // of a step
  std::shared_ptr<AnswerChannel> channel;
  std::stop_callback<Cancel> cancel;
};

}  // namespace

std::vector<Result<std::vector<float>>> EmbedAll(std::vector<Result<std::unique_ptr<Job>>> texts,
                                                 const TextRunner& runner,
                                                 const std::stop_token& stop) {
  std::vector<Result<std::vector<float>>> vectors(texts.size());
  std::deque<TextInFlight> in_flight;
  int64_t rows = 0;
  const auto await_first = [&] {
    const TextInFlight& first = in_flight.front();
    vectors[first.text] = runner.await(*first.channel);
    rows -= first.rows;
    in_flight.pop_front();
  };
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i]) {
      vectors[i] = tl::unexpected(std::move(texts[i]).error());
      continue;
    }
    const int64_t tokens = std::ssize((*texts[i])->prompt);
    const int64_t added = (tokens + runner.alignment - 1) / runner.alignment * runner.alignment;
    while (!in_flight.empty() && rows + added > 2 * runner.rows_of_step) await_first();
    if (stop.stop_requested()) {
      vectors[i] = MakeError(ErrorKind::kRuntime, "run.cancelled", "the request was cancelled");
      continue;
    }
    in_flight.emplace_back(i, added, runner.enqueue(*std::move(texts[i])), stop);
    rows += added;
  }
  while (!in_flight.empty()) await_first();
  return vectors;
}

}  // namespace rullama
