// Cases of attention and its parts: grouped heads, rings that have wrapped, windows, several slots
// in one step, the canvas mask.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "conformance/case.h"

namespace rullama::conformance {
namespace {

constexpr int32_t kNoBound = std::numeric_limits<int32_t>::max();  // a last position

// The rows of a step: `fresh[s]` rows of slot s after `past[s]` old ones.
struct Rows {
  std::vector<int32_t> past, fresh;
};

struct Setup {
  const char* name;
  int64_t heads, kv_heads, dim, capacity, window;
  rl_mask mask;
  KvTypes dtype;
  Rows rows;
  bool interleaved = false;  // rows of the slots take turns
  // The first and the last position of rows that see each other: there is an operand q_end if the
  // last one is not 0.
  int32_t block_first = 0, block_last = 0;
  // A step without caches, as of an encoder; with `reach`, q_end is as many positions after each.
  bool cached = true;
  int32_t reach = 0;
};

const Setup kSetups[] = {
    {"decode_f16", 4, 1, 64, 32, 0, RL_MASK_CAUSAL, DType::kF16, {{17}, {1}}},
    {"decode_f32", 2, 2, 256, 32, 0, RL_MASK_CAUSAL, DType::kF32, {{31}, {1}}},
    {"first_token", 2, 1, 64, 16, 0, RL_MASK_CAUSAL, DType::kF16, {{0}, {1}}},
    {"prefill_empty", 4, 2, 64, 32, 0, RL_MASK_CAUSAL, DType::kF16, {{0}, {19}}},
    {"prefill_behind_old", 4, 2, 64, 64, 0, RL_MASK_CAUSAL, DType::kF16, {{23}, {19}}},
    {"window", 4, 2, 64, 16, 16, RL_MASK_CAUSAL, DType::kF16, {{9}, {21}}},
    {"ring_wrapped", 4, 2, 64, 16, 16, RL_MASK_CAUSAL, DType::kF16, {{41}, {7}}},
    {"ring_wrapped_decode", 8, 1, 256, 16, 16, RL_MASK_CAUSAL, DType::kF16, {{1000}, {1}}},
    {"window_below_ring", 2, 1, 64, 32, 7, RL_MASK_CAUSAL, DType::kF16, {{50}, {3}}},
    {"long_decode", 8, 2, 128, 700, 0, RL_MASK_CAUSAL, DType::kF16, {{613}, {1}}},
    {"slots", 2, 1, 64, 32, 0, RL_MASK_CAUSAL, DType::kF16, {{5, 30, 0}, {3, 1, 4}}},
    {"slots_interleaved",
     2,
     1,
     64,
     32,
     12,
     RL_MASK_CAUSAL,
     DType::kF16,
     {{5, 20, 0}, {3, 3, 3}},
     true},
    // No more rows than slots, as in steps that decode for all of them, but several of one slot.
    {"few_rows_of_slots",
     4,
     2,
     64,
     64,
     0,
     RL_MASK_CAUSAL,
     DType::kF16,
     {{5, 45, 0, 17, 3, 2, 1, 9}, {3, 2, 2, 0, 0, 0, 0, 1}}},
    {"few_rows_of_slots_window",
     2,
     1,
     64,
     16,
     12,
     RL_MASK_CAUSAL,
     DType::kF16,
     {{50, 5, 0, 30}, {2, 0, 1, 1}}},
    {"few_rows_of_slots_canvas",
     2,
     1,
     64,
     64,
     0,
     RL_MASK_CANVAS,
     DType::kF32,
     {{29, 3, 0, 8}, {3, 0, 1, 0}}},
    {"few_rows_of_slots_block",
     4,
     2,
     64,
     64,
     4,
     RL_MASK_CAUSAL,
     DType::kF16,
     {{5, 45, 0, 17, 3, 2, 1, 9}, {6, 0, 0, 0, 1, 0, 0, 1}},
     false,
     6,
     9},
    {"fifteen_rows_of_a_slot",
     4,
     2,
     64,
     64,
     0,
     RL_MASK_CAUSAL,
     DType::kF16,
     {{10, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7},
      {14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}}},
    {"canvas", 4, 2, 64, 64, 0, RL_MASK_CANVAS, DType::kF16, {{29}, {16}}},
    {"canvas_window", 4, 2, 64, 16, 16, RL_MASK_CANVAS, DType::kF16, {{29}, {24}}},
    {"canvas_window_f32", 2, 2, 64, 16, 16, RL_MASK_CANVAS, DType::kF32, {{10}, {16}}},
    {"head_512", 2, 1, 512, 24, 0, RL_MASK_CAUSAL, DType::kF16, {{11}, {5}}},
    // Many rows, which devices compute in tiles.
    {"many", 8, 1, 256, 160, 0, RL_MASK_CAUSAL, DType::kF16, {{70}, {75}}},
    {"many_first", 8, 1, 512, 160, 0, RL_MASK_CAUSAL, DType::kF16, {{0}, {150}}},
    {"many_head_512", 8, 2, 512, 320, 0, RL_MASK_CAUSAL, DType::kF16, {{201}, {37}}},
    {"many_heads", 64, 1, 128, 64, 0, RL_MASK_CAUSAL, DType::kF16, {{9}, {17}}},
    {"many_own_keys", 4, 4, 128, 64, 0, RL_MASK_CAUSAL, DType::kF16, {{40}, {33}}},
    {"many_window", 8, 1, 256, 48, 48, RL_MASK_CAUSAL, DType::kF16, {{45}, {131}}},
    {"many_ring_wrapped", 4, 2, 256, 48, 40, RL_MASK_CAUSAL, DType::kF16, {{1003}, {70}}},
    {"many_slots", 2, 1, 256, 64, 0, RL_MASK_CAUSAL, DType::kF16, {{5, 60, 0}, {23, 1, 40}}},
    {"many_slots_interleaved",
     4,
     2,
     128,
     32,
     20,
     RL_MASK_CAUSAL,
     DType::kF16,
     {{5, 100, 0}, {11, 11, 11}},
     true},
    {"many_slots_interleaved_256",
     4,
     2,
     256,
     32,
     20,
     RL_MASK_CAUSAL,
     DType::kF16,
     {{5, 100, 0}, {11, 11, 11}},
     true},
    {"many_own_keys_256", 3, 3, 256, 64, 0, RL_MASK_CAUSAL, DType::kF16, {{40}, {65}}},
    {"many_window_512", 8, 4, 512, 40, 40, RL_MASK_CAUSAL, DType::kF16, {{1003}, {33}}},
    // Enough queries to keep a device with at most 134 multiprocessors busy: a wide case.
    {"many_queries_wide", 64, 8, 256, 48, 48, RL_MASK_CAUSAL, DType::kF16, {{1003}, {134}}},
    // Pictures: blocks of rows that see each other, one of them longer than the window.
    {"block", 4, 2, 64, 64, 0, RL_MASK_CAUSAL, DType::kF16, {{9}, {21}}, false, 13, 20},
    {"block_window", 4, 2, 64, 16, 16, RL_MASK_CAUSAL, DType::kF16, {{29}, {31}}, false, 33, 55},
    {"block_slots", 2, 1, 64, 32, 12, RL_MASK_CAUSAL, DType::kF32, {{5, 7}, {9, 9}}, true, 8, 12},
    {"many_block", 8, 1, 256, 48, 48, RL_MASK_CAUSAL, DType::kF16, {{45}, {91}}, false, 50, 120},
    {"many_block_128", 8, 1, 128, 48, 48, RL_MASK_CAUSAL, DType::kF16, {{45}, {61}}, false, 50, 95},
    // No bound above the positions.
    {"many_unbounded",
     4,
     2,
     256,
     64,
     0,
     RL_MASK_CAUSAL,
     DType::kF16,
     {{9}, {21}},
     false,
     9,
     kNoBound},
    {"many_canvas_128", 4, 2, 128, 32, 32, RL_MASK_CANVAS, DType::kF16, {{290}, {50}}},
    {"many_canvas", 8, 2, 256, 96, 0, RL_MASK_CANVAS, DType::kF16, {{29}, {64}}},
    {"many_canvas_window", 8, 1, 256, 32, 32, RL_MASK_CANVAS, DType::kF16, {{290}, {50}}},
    // Encoders: texts of several slots, whose rows see each other, or those near them.
    {"encoder", 3, 1, 64, 0, 0, RL_MASK_CANVAS, DType::kF32, {{0, 0}, {21, 2}}, false, 0, 0, false},
    // The heads of an image tower.
    {"encoder_72", 2, 2, 72, 0, 0, RL_MASK_CANVAS, DType::kF32, {{0}, {37}}, false, 0, 0, false},
    {"encoder_window",
     3,
     1,
     64,
     0,
     9,
     RL_MASK_CAUSAL,
     DType::kF32,
     {{0, 0, 0}, {21, 1, 5}},
     false,
     0,
     0,
     false,
     8},
    {"encoder_many_window",
     3,
     1,
     256,
     0,
     33,
     RL_MASK_CAUSAL,
     DType::kF32,
     {{0, 0}, {97, 70}},
     false,
     0,
     0,
     false,
     32},
    {"encoder_many",
     3,
     1,
     256,
     0,
     0,
     RL_MASK_CANVAS,
     DType::kF32,
     {{0, 0}, {97, 70}},
     false,
     0,
     0,
     false},
    {"encoder_many_512",
     4,
     2,
     512,
     0,
     17,
     RL_MASK_CAUSAL,
     DType::kF32,
     {{0, 0}, {50, 50}},
     true,
     0,
     0,
     false,
     16},
    // Caches in blocks, and of other types.
    {"decode_q8_0", 4, 1, 64, 32, 0, RL_MASK_CAUSAL, DType::kQ8_0, {{17}, {1}}},
    {"decode_q4_0", 8, 1, 256, 32, 0, RL_MASK_CAUSAL, DType::kQ4_0, {{31}, {1}}},
    {"decode_bf16", 2, 2, 64, 32, 0, RL_MASK_CAUSAL, DType::kBF16, {{17}, {1}}},
    {"long_decode_q8_0", 8, 1, 512, 700, 0, RL_MASK_CAUSAL, DType::kQ8_0, {{613}, {1}}},
    {"long_decode_q4_0", 8, 2, 128, 700, 0, RL_MASK_CAUSAL, DType::kQ4_0, {{613}, {1}}},
    {"decode_q8_0_q4_0",
     8,
     2,
     128,
     64,
     0,
     RL_MASK_CAUSAL,
     {DType::kQ8_0, DType::kQ4_0},
     {{45}, {1}}},
    {"prefill_f16_q8_0",
     4,
     2,
     64,
     64,
     0,
     RL_MASK_CAUSAL,
     {DType::kF16, DType::kQ8_0},
     {{23}, {19}}},
    {"ring_wrapped_q8_0", 4, 2, 96, 16, 16, RL_MASK_CAUSAL, DType::kQ8_0, {{41}, {7}}},
    {"slots_q4_0", 2, 1, 64, 32, 0, RL_MASK_CAUSAL, DType::kQ4_0, {{5, 30, 0}, {3, 1, 4}}},
    {"few_rows_of_slots_q8_0",
     4,
     2,
     64,
     64,
     0,
     RL_MASK_CAUSAL,
     DType::kQ8_0,
     {{5, 45, 0, 17, 3, 2, 1, 9}, {3, 2, 2, 0, 0, 0, 0, 1}}},
    {"ring_wrapped_bf16", 4, 2, 64, 16, 16, RL_MASK_CAUSAL, DType::kBF16, {{41}, {7}}},
    {"canvas_q8_0", 4, 2, 64, 64, 0, RL_MASK_CANVAS, DType::kQ8_0, {{29}, {16}}},
    {"canvas_window_q4_0", 4, 2, 64, 16, 16, RL_MASK_CANVAS, DType::kQ4_0, {{29}, {24}}},
    {"many_bf16", 8, 1, 256, 160, 0, RL_MASK_CAUSAL, DType::kBF16, {{70}, {75}}},
    {"many_q8_0", 8, 1, 256, 160, 0, RL_MASK_CAUSAL, DType::kQ8_0, {{70}, {75}}},
    {"many_q4_0", 8, 2, 512, 320, 0, RL_MASK_CAUSAL, DType::kQ4_0, {{201}, {37}}},
    {"many_q8_0_q4_0",
     8,
     1,
     256,
     160,
     0,
     RL_MASK_CAUSAL,
     {DType::kQ8_0, DType::kQ4_0},
     {{70}, {75}}},
    {"many_f16_q8_0", 8, 1, 256, 160, 0, RL_MASK_CAUSAL, {DType::kF16, DType::kQ8_0}, {{70}, {75}}},
    {"many_ring_q8_0", 8, 1, 256, 64, 64, RL_MASK_CAUSAL, DType::kQ8_0, {{201}, {37}}},
    {"decode_q8_0_odd_blocks", 4, 2, 96, 32, 0, RL_MASK_CAUSAL, DType::kQ8_0, {{17}, {1}}},
    // As in a tower for pictures, whose head dimension is not a multiple of 32.
    {"many_f32", 3, 3, 72, 160, 0, RL_MASK_CANVAS, DType::kF32, {{0}, {150}}},
};

struct Values {
  ValueId q = kNoValue, k_new = kNoValue, v_new = kNoValue, k_state = kNoValue, v_state = kNoValue;
  ValueId pos = kNoValue, slot = kNoValue, past = kNoValue, end = kNoValue;
};

int64_t StepRows(const Rows& rows) {
  int64_t count = 0;
  for (const int32_t fresh : rows.fresh) count += fresh;
  return count;
}

// Where keys and values are rounded to f16 or less, a backend may round the queries and weights of
// many rows as well. Where rows see later ones and there is no cache, it may round queries, keys,
// values and weights.
ToleranceClass ToleranceOf(const Setup& s) {
  constexpr int64_t kManyRows = 16, kManyFreshRows = 64;
  const int64_t rows = StepRows(s.rows);
  const bool is_half = s.dtype.keys != DType::kF32 && s.dtype.values != DType::kF32;
  const bool sees_later = !s.cached && (s.mask == RL_MASK_CANVAS || s.reach > 0);
  const bool rounded = (is_half && rows >= kManyRows) || (sees_later && rows >= kManyFreshRows);
  return rounded ? ToleranceClass::kHalfFactors : ToleranceClass::kContraction;
}

// Positions and slots of the rows in the order of the step.
void Order(const Setup& s, std::vector<int32_t>& pos, std::vector<int32_t>& slot) {
  std::vector<int32_t> next = s.rows.past;
  const auto add = [&](size_t i) {
    pos.push_back(next[i]++);
    slot.push_back(static_cast<int32_t>(i));
  };
  const size_t slots = s.rows.past.size();
  if (s.interleaved) {
    for (int32_t round = 0; round < s.rows.fresh[0]; ++round) {
      for (size_t i = 0; i < slots; ++i) add(i);
    }
    return;
  }
  for (size_t i = 0; i < slots; ++i) {
    for (int32_t n = 0; n < s.rows.fresh[i]; ++n) add(i);
  }
}

// The last position that each row sees, or nothing if that is always its own.
ValueId LastVisible(CaseBuilder& b, const Setup& s, const std::vector<int32_t>& pos) {
  if (s.block_last == 0 && s.reach == 0) return kNoValue;
  std::vector<int32_t> last = pos;
  for (int32_t& position : last) {
    position += s.reach;
    if (position >= s.block_first) position = std::max(position, s.block_last);
  }
  return b.Ints("end", I({kT}), last);
}

Values Make(CaseBuilder& b, const Setup& s) {
  const auto slots = static_cast<int64_t>(s.rows.past.size());
  const auto fresh = [&](DType dtype) { return TensorType(dtype, {kT, s.kv_heads, s.dim}); };
  const auto state = [&](DType dtype) {
    return TensorType(dtype, {slots, s.capacity, s.kv_heads, s.dim});
  };
  std::vector<int32_t> pos, slot;
  Order(s, pos, slot);
  // Scores of order one.
  const double size = 1 / std::sqrt(static_cast<double>(s.dim));
  if (!s.cached) {
    return {.q = b.Floats("q", F({kT, s.heads, s.dim}), -3, 3),
            .k_new = b.Floats("k_new", fresh(s.dtype.keys), -3 * size, 3 * size),
            .v_new = b.Floats("v_new", fresh(s.dtype.values)),
            .pos = b.Ints("pos", I({kT}), pos),
            .slot = b.Ints("slot", I({kT}), slot),
            .end = LastVisible(b, s, pos)};
  }
  return {b.Floats("q", F({kT, s.heads, s.dim}), -3, 3),
          b.Floats("k_new", fresh(s.dtype.keys), -3 * size, 3 * size),
          b.Floats("v_new", fresh(s.dtype.values)),
          b.State("k_state", state(s.dtype.keys), -3 * size, 3 * size),
          b.State("v_state", state(s.dtype.values)),
          b.Ints("pos", I({kT}), pos),
          b.Ints("slot", I({kT}), slot),
          b.Ints("past", I({slots}), s.rows.past),
          LastVisible(b, s, pos)};
}

// Rows of the state that no query may see are not-a-numbers in half of the cases: they must not be
// read.
void SpoilUnused(Case& test, const Setup& s) {
  for (const char* name : {"k_state", "v_state"}) {
    Bytes& bytes = test.data.find(name)->second;
    const size_t row = bytes.size() / (s.rows.past.size() * static_cast<size_t>(s.capacity));
    for (size_t slot = 0; slot < s.rows.past.size(); ++slot) {
      const auto used = static_cast<size_t>(std::min<int64_t>(s.rows.past[slot], s.capacity));
      for (size_t i = used; i < static_cast<size_t>(s.capacity); ++i) {
        const size_t at = (slot * static_cast<size_t>(s.capacity) + i) * row;
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), row, std::byte{0xFF});
      }
    }
  }
}

Case AttentionCase(const Setup& s, uint64_t seed) {
  CaseBuilder b(seed, StepRows(s.rows));
  const Values v = Make(b, s);
  Case test = OneOp(
      std::move(b), OpKind::kAttention,
      {v.q, v.k_new, v.v_new, v.k_state, v.v_state, v.pos, v.slot, v.pos, v.slot, v.past, v.end},
      OpAttrs(rl_attention_attrs{0, s.mask, s.window, 0.7F}), ToleranceOf(s));
  if (s.cached) SpoilUnused(test, s);
  return test;
}

Case ScoresCase(const Setup& s, uint64_t seed) {
  CaseBuilder b(seed, StepRows(s.rows));
  const Values v = Make(b, s);
  Case test = OneOp(std::move(b), OpKind::kAttentionScores,
                    {v.q, v.k_new, v.k_state, v.pos, v.slot, v.pos, v.slot, v.past, v.end},
                    OpAttrs(rl_attention_scores_attrs{0, s.mask, s.window, 0.7F}),
                    ToleranceClass::kContraction);
  return test;
}

// Probabilities of which half are 0; there the state holds not-a-numbers.
Case MixCase(const Setup& s, uint64_t seed) {
  CaseBuilder b(seed, StepRows(s.rows));
  const Values v = Make(b, s);
  const TensorType type(DType::kF32, {kT, s.heads, Dim(s.capacity, 1, 0)});
  const auto columns = static_cast<size_t>(s.capacity + b.extents().t);
  std::vector<double> p(static_cast<size_t>(type.ElementsAt(b.extents())));
  for (size_t i = 0; i < p.size(); ++i) {
    const size_t column = i % columns;
    const bool unused = column < static_cast<size_t>(s.capacity) && column % 2 == 1;
    p[i] = unused ? 0 : b.random().Uniform(0, 2.0 / static_cast<double>(columns));
  }
  const ValueId probability = b.Floats("probability", type, p);
  Case test = OneOp(std::move(b), OpKind::kAttentionMix, {probability, v.v_new, v.v_state, v.slot},
                    OpAttrs(OpKind::kAttentionMix), ToleranceClass::kContraction);
  Bytes& bytes = test.data.find("v_state")->second;
  const size_t rows = s.rows.past.size() * static_cast<size_t>(s.capacity);
  const size_t row = bytes.size() / rows;
  for (size_t i = 0; i < rows; ++i) {
    if (i % static_cast<size_t>(s.capacity) % 2 == 1) {
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(i * row), row, std::byte{0xFF});
    }
  }
  return test;
}

}  // namespace

void AddAttentionCases(std::vector<CaseSpec>& cases) {
  for (const Setup& s : kSetups) {
    cases.push_back({fmt::format("attention/{}", s.name), OpKind::kAttention,
                     [&s](uint64_t seed) { return AttentionCase(s, seed); }});
    // attention_scores and attention_mix have one kernel for any number of queries.
    if (std::string_view(s.name).ends_with("_wide") || !s.cached) continue;
    cases.push_back({fmt::format("attention_scores/{}", s.name), OpKind::kAttentionScores,
                     [&s](uint64_t seed) { return ScoresCase(s, seed); }});
    cases.push_back({fmt::format("attention_mix/{}", s.name), OpKind::kAttentionMix,
                     [&s](uint64_t seed) { return MixCase(s, seed); }});
  }
}

}  // namespace rullama::conformance
