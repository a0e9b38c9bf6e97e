// The history of the rows of one slot: how far they were written and how far back they were
// given up. From this follows to which positions the slot may go back, and whether rows that a
// snapshot left in the slot are still those of the snapshot.
//
// After position q was reached, a ring of W + S rows holds the positions [q - W - S, q). A query at
// p reads at most [p - W + 1, p]. So while q <= W + S a slot may go back to any position,
// afterwards by S + 1 rows at most (the row at p mod W + S is then a newer one, which no query at p
// reads), and always to 0. S is the number of spare rows.
//
// Value type; one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace rullama {

class SlotLog {
 public:
  // `ring_rows`: the rows of the slot's shortest state, of which `spare` are spare.
  explicit SlotLog(int64_t ring_rows, int64_t spare = 0) : ring_rows_(ring_rows), spare_(spare) {}

  // The end of the positions that were written.
  [[nodiscard]] int32_t written() const { return written_; }
  // Whether a query at position p (at most the slot's past) finds the rows it reads.
  [[nodiscard]] bool Holds(int32_t p) const { return p == 0 || p >= earliest(); }
  // The least position but 0 that the slot may go back to.
  [[nodiscard]] int32_t earliest() const {
    return written_ <= ring_rows_ ? 0 : written_ - 1 - static_cast<int32_t>(spare_);
  }

  // Rows up to position `end` were written, or may have been by a step that failed.
  void Append(int32_t end);
  // The slot went back to p, which it holds.
  void GoBack(int32_t p);
  // The rows were replaced from position `kept` on, by those of a sequence that had been written to
  // position `written`.
  void Replace(int32_t kept, int32_t written);

  // A number that grows with every GoBack and Replace.
  [[nodiscard]] uint64_t moment() const { return moment_; }
  // Whether positions [0, p) have not been given up since `moment`.
  [[nodiscard]] bool KeptSince(uint64_t moment, int32_t p) const;

 private:
  struct GivenUp {
    uint64_t moment;
    int32_t from;
  };
  void GiveUpFrom(int32_t p);

  int64_t ring_rows_;
  int64_t spare_;
  int32_t written_ = 0;
  uint64_t moment_ = 0;
  // Ascending in both members: an event that gave up more replaces earlier ones that gave up less.
  std::vector<GivenUp> given_up_;
};

}  // namespace rullama
