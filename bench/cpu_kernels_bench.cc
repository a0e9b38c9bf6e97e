// Speed of the CPU kernels against the machine's limits.
//
//   cpu_kernels_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
//
// PlainRead measures the memory bandwidth and Int8Peak the peak rate of int8 dot products. Compare
// the bytes per second of Gemv with PlainRead and the operations per second (two per multiply-add)
// of Gemm with Int8Peak, in the same run and with the same number of threads. Every thread streams
// its own rows of a matrix larger than any cache.
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/prefetch.h"
#include "benchmark/benchmark.h"

namespace rullama::cpu {
namespace {

constexpr size_t kVocabulary = 262144;  // rows of the output head of Gemma 4 E2B
constexpr size_t kWidth = 1536;         // its model width

struct FreeBytes {
  void operator()(uint8_t* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<uint8_t[], FreeBytes>;

// Random weights with finite scales; every row is a copy of one random row.
Bytes MakeWeights(DType dtype, size_t rows, size_t k) {
  const size_t row_bytes = RowBytes(dtype, k);
  Bytes bytes(
      static_cast<uint8_t*>(std::aligned_alloc(4096, (rows * row_bytes + 4095) / 4096 * 4096)));
  std::mt19937 rng(1);
  // With every byte below 0x40, f16 fields are finite and positive.
  for (size_t i = 0; i < row_bytes; ++i) bytes[i] = static_cast<uint8_t>(rng() & 0x3F);
  for (size_t n = 1; n < rows; ++n) std::memcpy(&bytes[n * row_bytes], &bytes[0], row_bytes);
  return bytes;
}

// Memory in large pages, like the backend's packed weights.
Bytes LargePages(size_t bytes) {
  constexpr size_t kLargePage = size_t{2} << 20;
  const size_t whole = (bytes + kLargePage - 1) / kLargePage * kLargePage;
  Bytes memory(static_cast<uint8_t*>(std::aligned_alloc(kLargePage, whole)));
  madvise(memory.get(), whole, MADV_HUGEPAGE);
  return memory;
}

Bytes Packed(const KernelTable& table, DType dtype, const Bytes& rows, size_t n, size_t k) {
  const size_t row_bytes = RowBytes(dtype, k);
  Bytes packed = LargePages(n * row_bytes);
  for (size_t row = 0; row < n; row += kPackedRows) {
    FindWeight(table, dtype)->pack(&rows[row * row_bytes], row_bytes, k, &packed[row * row_bytes]);
  }
  return packed;
}

Bytes AlignedCopy(const std::vector<float>& values) {
  const size_t bytes = values.size() * sizeof(float);
  Bytes copy(static_cast<uint8_t*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
  std::memcpy(copy.get(), values.data(), bytes);
  return copy;
}

constexpr ActivationBits kActivationBits = ActivationBits::k16;  // the default of the backend

Bytes MakeActivations(const KernelTable& table, DType dtype, size_t batch, size_t k) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(batch * k);
  for (float& v : x) v = normal(rng);
  const ActivationFormat format = FormatFor(table, dtype, batch);
  if (format == ActivationFormat::kFloat32) return AlignedCopy(x);
  const size_t stride = ActivationRowBytes(format, k, kActivationBits) / sizeof(float);
  std::vector<float> rows(batch * stride);
  for (size_t m = 0; m < batch; ++m) {
    MakeActivationRow(table, format, &x[m * k], k, kActivationBits, &rows[m * stride]);
  }
  return AlignedCopy(rows);
}

// The range of `total` items that belongs to this thread of the benchmark.
struct Range {
  size_t begin, end;
};
Range ShareOf(const benchmark::State& state, size_t total) {
  const auto threads = static_cast<size_t>(state.threads());
  const auto thread = static_cast<size_t>(state.thread_index());
  return {total * thread / threads, total * (thread + 1) / threads};
}

// Data shared by the threads of one benchmark. Thread 0 creates it before the timed loop, whose
// start is a barrier.
struct Shared {
  Bytes weights, x;
  std::vector<float> y;
};
Shared shared;

// Six parallel streams were the fastest way to read that was found.
constexpr size_t kStreams = 6;
constexpr size_t kStreamStep = 128;

#ifdef __x86_64__
[[gnu::target("avx512f")]] void ReadWide(const uint8_t* p, size_t bytes) {
  const size_t apart = bytes / kStreams / kStreamStep * kStreamStep;
  __m512i sum[kStreams] = {};
  for (size_t i = 0; i < apart; i += kStreamStep) {
#pragma GCC unroll 6
    for (size_t s = 0; s < kStreams; ++s) {
      const uint8_t* at = p + s * apart + i;
      _mm_prefetch(at + kPrefetchBytes, _MM_HINT_T0);
      _mm_prefetch(at + kPrefetchBytes + 64, _MM_HINT_T0);
      sum[s] = _mm512_xor_si512(sum[s], _mm512_load_si512(at));
      sum[s] = _mm512_xor_si512(sum[s], _mm512_load_si512(at + 64));
    }
  }
  benchmark::DoNotOptimize(sum);
}
#endif

void ReadNarrow(const uint8_t* p, size_t bytes) {
  const size_t apart = bytes / kStreams / kStreamStep * kStreamStep;
  uint64_t sum[kStreams][8] = {};
  for (size_t i = 0; i < apart; i += sizeof(sum[0])) {
    for (size_t s = 0; s < kStreams; ++s) {
      uint64_t words[8];
      std::memcpy(words, p + s * apart + i, sizeof(words));
      for (size_t j = 0; j < 8; ++j) sum[s][j] += words[j];
    }
  }
  benchmark::DoNotOptimize(sum);
}

void PlainRead(benchmark::State& state) {
  constexpr size_t kBytes = size_t{256} << 20;
  if (state.thread_index() == 0) {
    shared.weights = LargePages(kBytes);
    std::memset(shared.weights.get(), 1, kBytes);
  }
  const Range lines = ShareOf(state, kBytes / kStreamStep);
  const size_t bytes = (lines.end - lines.begin) * kStreamStep;
  for (auto _ : state) {
    const uint8_t* p = shared.weights.get() + lines.begin * kStreamStep;
#ifdef __x86_64__
    if (IsaAvailable(Isa::kAvx512)) {
      ReadWide(p, bytes);
      continue;
    }
#endif
    ReadNarrow(p, bytes);
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes * state.iterations()));
}

#ifdef __x86_64__
// VNNI on registers alone. Sixteen independent sums hide the latency.
[[gnu::target("avx512f,avx512vnni")]] void Int8Peak(benchmark::State& state) {
  constexpr int kSums = 16;
  constexpr int kSteps = 4096;
  const __m512i quants = _mm512_set1_epi8(3);
  __m512i sums[kSums] = {};
  for (auto _ : state) {
    for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
      for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, quants, quants);
    }
    benchmark::DoNotOptimize(sums);
  }
  state.counters["ops"] =
      benchmark::Counter(2.0 * 64 * kSums * kSteps * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}
#endif

// Which kernel multiplies: what the backend takes, or for packed weights GEMV or GEMM.
enum class Choice { kBackends, kGemv, kGemm };

KernelTable TableFor(Isa isa, Choice choice) {
  KernelTable table = KernelsFor(isa);
  if (choice != Choice::kBackends) {
    for (WeightKernels& kernels : table.weights) {
      kernels.packed_gemm_min_batch = choice == Choice::kGemv ? SIZE_MAX : 1;
    }
    table.split_min_batch = SIZE_MAX;
  }
  return table;
}

void RunMatMul(benchmark::State& state, Isa isa, DType dtype, size_t n, size_t k, size_t batch,
               Choice choice) {
  const KernelTable table = TableFor(isa, choice);
  // The backend packs every type that can be packed.
  const bool packed = FindWeight(table, dtype)->pack != nullptr;
  if (state.thread_index() == 0) {
    shared.weights = MakeWeights(dtype, n, k);
    if (packed) shared.weights = Packed(table, dtype, shared.weights, n, k);
    shared.x = MakeActivations(table, dtype, batch, k);
    shared.y.assign(n * batch, 0.0f);
  }
  std::vector<uint8_t> scratch(MatMulScratchBytes(table, dtype, k, batch));
  const ActivationFormat format = FormatFor(table, dtype, batch);
  const Range range = ShareOf(state, n / kPanelRows);
  const size_t rows = (range.end - range.begin) * kPanelRows;
  for (auto _ : state) {
    MatMul(table, dtype,
           {.weights = shared.weights.get(),
            .packed = packed,
            .row_bytes = RowBytes(dtype, k),
            .k = k,
            .n_begin = range.begin * kPanelRows,
            .n_end = range.end * kPanelRows,
            .x = shared.x.get(),
            .x_stride = ActivationRowBytes(format, k, kActivationBits),
            .batch = batch,
            .format = format,
            .activation_bits = kActivationBits,
            .y = shared.y.data(),
            .y_stride = n,
            .scratch = scratch.data()});
  }
  const auto iterations = static_cast<double>(state.iterations());
  state.SetBytesProcessed(static_cast<int64_t>(rows * RowBytes(dtype, k) * state.iterations()));
  state.counters["ops"] = benchmark::Counter(
      2.0 * static_cast<double>(rows * k * batch) * iterations, benchmark::Counter::kIsRate);
}

// Decoding: the queries that share a head of keys and values in a cache of `type`.
void AttentionDecode(benchmark::State& state, Isa isa, DType type, size_t heads, size_t head_dim,
                     size_t keys) {
  const KernelTable& table = KernelsFor(isa);
  const size_t row_bytes = RowBytes(type, head_dim);
  const std::vector<uint16_t> cache(keys * row_bytes, 0x3400);  // 0.25, also of scales
  const auto* bytes = reinterpret_cast<const std::byte*>(cache.data());
  const std::vector<float> q(heads * head_dim, 0.1f);
  std::vector<float> out(heads * head_dim);
  std::vector<AttentionQuery> queries(heads);
  for (size_t h = 0; h < heads; ++h) {
    queries[h] = {.q = &q[h * head_dim],
                  .out = &out[h * head_dim],
                  .first_visible = 0,
                  .last_visible = static_cast<int64_t>(keys)};
  }
  const KvSegment segment{.keys = bytes,
                          .values = bytes + keys * row_bytes,
                          .key_stride = row_bytes,
                          .value_stride = row_bytes,
                          .count = keys,
                          .key_type = type,
                          .value_type = type};
  std::vector<float> scratch(AttentionScratchBytes(head_dim, heads) / sizeof(float));
  for (auto _ : state) {
    table.attention({.segments = &segment,
                     .segment_count = 1,
                     .queries = queries.data(),
                     .query_count = heads,
                     .head_dim = head_dim,
                     .scratch = scratch.data()});
  }
  state.SetBytesProcessed(static_cast<int64_t>(2 * keys * row_bytes) * state.iterations());
  state.counters["ops"] = benchmark::Counter(
      4.0 * static_cast<double>(heads * head_dim * keys) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

void RegisterAll() {
  for (int threads : {1, 2}) {
    benchmark::RegisterBenchmark("PlainRead", PlainRead)->Threads(threads)->UseRealTime();
  }
#ifdef __x86_64__
  for (int threads : {1, 2}) {
    if (!IsaAvailable(Isa::kAvx512Vnni)) break;
    benchmark::RegisterBenchmark("Int8Peak", Int8Peak)->Threads(threads)->UseRealTime();
  }
#endif
  const Isa best = BestIsa();
  const auto add = [](const std::string& name, Isa isa, DType dtype, size_t n, size_t k,
                      size_t batch, Choice choice = Choice::kBackends) {
    const std::string full = name + "/" + std::string(NameOf(dtype)) + "/" + IsaName(isa) +
                             "/m:" + std::to_string(batch) + "/k:" + std::to_string(k);
    for (int threads : {1, 2}) {
      benchmark::RegisterBenchmark(full.c_str(), RunMatMul, isa, dtype, n, k, batch, choice)
          ->Threads(threads)
          ->UseRealTime();
    }
  };
  for (DType dtype : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kQ4_0, DType::kQ5_0}) {
    add("Gemv", best, dtype, kVocabulary, kWidth, 1);
  }
  for (size_t batch : {2u, 3u, 4u, 6u, 8u}) {
    add("Small", best, DType::kQ4_K, kVocabulary, kWidth, batch);
    add("Small", best, DType::kQ6_K, kVocabulary, kWidth, batch);
  }
  add("Gemv", best, DType::kF16, 8960, kWidth, 1);
  for (DType dtype :
       {DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S}) {
    add("Gemv", best, dtype, 8960, kWidth, 1);
    add("Gemm", best, dtype, 6144, 1536, 512);
  }
  add("Gemv", Isa::kAvx512Vnni, DType::kQ4_K, kVocabulary, kWidth, 1);
  add("Gemv", Isa::kAvx2, DType::kQ4_K, kVocabulary, kWidth, 1);
  add("Gemv", Isa::kPortable, DType::kQ4_K, kVocabulary, kWidth, 1);
  // Feed-forward shapes of the prompt phase.
  for (DType dtype : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kQ5_0}) {
    add("Gemm", best, dtype, 6144, 1536, 512);
  }
  add("Gemm", best, DType::kQ4_K, 1536, 6144, 512);
  add("Gemm", best, DType::kQ4_K, 6144, 1536, 32);
  add("Gemm", best, DType::kQ4_K, 6144, 1536, 128);
  add("Gemm", best, DType::kQ4_K, 6144, 1536, 256);
  add("Gemm", best, DType::kF16, 8960, 1536, 512);
  add("Gemm", Isa::kAvx512Vnni, DType::kQ4_K, 6144, 1536, 512);
  add("Gemm", Isa::kAvx512Vnni, DType::kQ6_K, 6144, 1536, 512);
  add("Gemm", Isa::kAvx2, DType::kQ4_K, 6144, 1536, 512);
  add("Gemm", Isa::kPortable, DType::kQ4_K, 6144, 1536, 64);
  // Where packed weights change over from GEMV to GEMM (WeightKernels::packed_gemm_min_batch).
  for (Isa isa : {Isa::kAmx, Isa::kAvx512Vnni, Isa::kAvx512, Isa::kAvxVnni, Isa::kAvx2}) {
    if (!IsaAvailable(isa)) continue;
    for (DType dtype :
         {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ8_0, DType::kQ4_0, DType::kQ5_0}) {
      for (size_t batch : {16u, 32u, 64u, 128u}) {
        add("PackedGemv", isa, dtype, 6144, 1536, batch, Choice::kGemv);
        add("PackedGemm", isa, dtype, 6144, 1536, batch, Choice::kGemm);
      }
    }
  }
  for (size_t heads : {8u, 64u}) {
    const std::string name = "Attention/queries:" + std::to_string(heads) + "/dim:256/keys:4096";
    benchmark::RegisterBenchmark(name.c_str(), AttentionDecode, best, DType::kF16, heads,
                                 size_t{256}, size_t{4096});
  }
  // Global layers after long contexts: 8 queries a head in E2B, fewer in larger models.
  for (size_t heads : {2u, 4u, 8u}) {
    for (DType type : {DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
      const std::string name = "Attention/" + std::string(NameOf(type)) +
                               "/queries:" + std::to_string(heads) + "/dim:512/keys:32768";
      for (int threads : {1, 2, 8, 16}) {
        benchmark::RegisterBenchmark(name.c_str(), AttentionDecode, best, type, heads, size_t{512},
                                     size_t{32768})
            ->Threads(threads)
            ->UseRealTime();
      }
    }
  }
}

}  // namespace
}  // namespace rullama::cpu

int main(int argc, char** argv) {
  rullama::cpu::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
