// Attention over the old rows of a slot and the fresh rows of the step, in tiles of 32 keys with a
// running softmax. A work-group takes up to 16 queries (rows times heads that share a key/value
// head) and a part of the tiles of keys; attention_merge.cl joins the parts. The old tiles of a
// slot are dealt to the parts from the first on, fresh ones from the last on: what a row gives does
// not depend on the other slots of the step. Keys and values are read once for all queries of the
// work-group. Accumulates in f32.
#include "common.cl"
#include "attention.args"
#include "math.kernel"
#include "reduce.cl"

#if kType == kF32
#define Element float
#else
#define Element ushort
#endif

#define kKeys 32  // of a tile
#define kMaxQueries 16

#ifdef CPU
#include "attention_cpu.cl"
#else
#include "attention_gpu.cl"
#endif
