// Attention over the old rows of a slot and the fresh rows of the step, in tiles of 32 keys with a
// running softmax. A work-group takes up to 16 queries (rows times heads that share a key/value head)
// and every `parts`-th tile of keys; attention_merge.cl joins the parts. Keys and values are read once
// for all of its queries. Accumulates in f32.
#include "common.cl"
#include "math.cl"
#include "reduce.cl"

#define kHeads C1  // query heads in all
#define kKvHeads C2
#define kGroup C3  // query heads of this work-group
#define kRows C4   // query rows of this work-group
#define kDim C5
#define kType C6  // of keys and values, f32 or f16
#define kSlots C7
#define kCapacity C8  // rows of a slot
#define kWindow ((int)C9)
#define kCanvas C10
#define kScale as_float(C11)
#define kBatch C12  // loads under way at a time

typedef struct {
  Pointer step, q, k_new, v_new, k_state, v_state, q_pos, q_slot, kv_pos, kv_slot, past, y;
  Extent rows;   // of queries
  Extent fresh;  // of keys
} Push;

#define ATTENTION_BUFFERS                                                                 \
  BUFFER(step) BUFFER(q) BUFFER(k_new) BUFFER(v_new) BUFFER(k_state) BUFFER(v_state)      \
      BUFFER(q_pos) BUFFER(q_slot) BUFFER(kv_pos) BUFFER(kv_slot) BUFFER(past) BUFFER(y)

#if kType == kF32
#define Element float
#else
#define Element ushort
#endif

#define kKeys 32  // of a tile
#define kMostQueries 16

#ifdef CPU
#include "attention_cpu.cl"
#else
#include "attention_gpu.cl"
#endif
