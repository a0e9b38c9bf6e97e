// The scores of a tile (attention_grad.cl), on their way to local memory. The includer has the type
// Shared and StoreScore(other, own, score, product, shared).
INLINED void StoreScores(const float* sums, __local Shared* s) {
  UNROLL_TURNS
  for (uint turn = 0; turn < kTurns; ++turn) {
    const uint block = ME + turn * THREADS;
    if (block >= kBlocks) continue;
    UNROLL
    for (uint i = 0; i < kOtherSide; ++i) {
      UNROLL
      for (uint j = 0; j < kOwnSide; ++j) {
        const uint at = (turn * kOtherSide + i) * kOwnSide + j;
        StoreScore(block / kOwnStep + i * kOtherStep, block % kOwnStep + j * kOwnStep, sums[at],
                   sums[kScores + at], s);
      }
    }
  }
}
