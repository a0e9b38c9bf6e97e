#include "backends/cuda/forms.h"

#include <rullama/sdk/dtype.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "backends/cuda/target.h"
#include "backends/gpu/kernel_source.h"
#include "backends/gpu/product_plan.h"
#include "backends/gpu/weights.h"

namespace rullama::cuda {
namespace {

using gpu::Shader;

// A constant by its name in kernels; THREADS is the size of a workgroup.
size_t IdOf(Shader shader, std::string_view name) {
  if (name == "THREADS") return 0;
  const size_t id = gpu::FindConstant(shader, name);
  if (id == 0) {
    throw std::logic_error("no constant " + std::string(name) + " of " +
                           std::string(gpu::NameOf(shader)));
  }
  return id;
}

struct Value {
  std::string_view name;
  uint32_t value;
};
using Values = std::vector<Value>;

#ifdef RULLAMA_CUDA_FEW_FORMS
constexpr bool kFewForms = true;
#else
constexpr bool kFewForms = false;
#endif

// The types that all builds have forms for: those of the models that tests have, and one of each
// way to store blocks.
bool IsUsual(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ8_0:
    case DType::kQ4_K:
    case DType::kQ6_K:
      return true;
    default:
      return false;
  }
}

// Types that few models have: kernels that are dear to compile read the type when they run, too.
bool IsRare(DType type) {
  switch (type) {
    case DType::kIQ1_S:
    case DType::kIQ1_M:
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
    case DType::kTQ1_0:
    case DType::kTQ2_0:
      return true;
    default:
      return false;
  }
}

// Types for whose products with an adapter there are forms of their own.
bool IsOftenAdapted(DType type) {
  return IsUsual(type) || type == DType::kQ4_0 || type == DType::kQ5_K;
}

// Types of weights of products, as values of kType; and any type of blocks.
struct WeightType {
  Values values;
  bool in_blocks, is_half, is_q4_k, has_warpgroups, is_often_adapted;
  [[nodiscard]] bool is_any() const { return values.empty(); }
};

const WeightType kAnyBlocks{{}, true, false, false, false, false};

std::vector<WeightType> WeightTypes(bool with_rare) {
  std::vector<WeightType> types;
  for (const DTypeInfo& info : kDTypes) {
    if (!HasFormsFor(info.dtype) || (IsRare(info.dtype) && !with_rare)) continue;
    types.push_back({{{"kType", static_cast<uint32_t>(info.dtype)}},
                     IsBlockType(info.dtype),
                     info.dtype == DType::kF16,
                     info.dtype == DType::kQ4_K,
                     HasWarpgroupFormsFor(info.dtype),
                     IsOftenAdapted(info.dtype)});
  }
  return types;
}

Values Joined(Values a, const Values& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Columns that matvec_rows.cuh has in shared memory at a time of rows that are not short: at least
// those of a row that is normed. Four rows fit the 99 KiB that all devices have.
uint32_t SliceOf(uint32_t rows) { return rows == 2 ? 12288 : 8192; }

// The layout is that of matvec_rows.cuh.
uint32_t BytesOfRows(uint32_t rows, uint32_t columns, bool pairs) {
  constexpr uint32_t kVector = 16;
  const uint32_t runs = columns / 16, scales = pairs ? runs / 2 : runs;
  const uint32_t sums = 2 * rows * kRowThreads * sizeof(float);
  return kVector * (rows * (2 * runs + 4) + rows / 2 * scales) + sums;
}

// Lists the forms of kernels.
class List {
 public:
  List() {
    AddProducts();
    AddPlainProducts();
    AddAttention();
    AddOthers();
  }
  std::vector<Form> forms;

 private:
  Form& Add(Shader shader, const Values& fixed, uint32_t most_threads = 0) {
    Form& form = forms.emplace_back();
    form.shader = shader;
    form.fixed = ConstantsOf(shader, fixed);
    form.file = std::string(gpu::NameOf(shader)) + ".kernel";
    if (most_threads > 0) {
      form.most_threads = most_threads;
      form.bounds.push_back({{0}, most_threads});
    }
    has_.insert({shader, true});
    return form;
  }

  static std::vector<Constant> ConstantsOf(Shader shader, const Values& values) {
    std::vector<Constant> out;
    for (const Value& value : values) out.push_back({IdOf(shader, value.name), value.value});
    return out;
  }

  static void Limit(Form& form, std::initializer_list<std::string_view> names, uint64_t most) {
    Bound bound{{}, most};
    for (const std::string_view name : names) bound.ids.push_back(IdOf(form.shader, name));
    form.bounds.push_back(std::move(bound));
  }

  // ---- products with weights: forms for each type of them

  void AddProducts() {
    for (const WeightType& type : WeightTypes(/*with_rare=*/true)) AddMatVec(type);
    std::vector<WeightType> types = WeightTypes(/*with_rare=*/false);
    if (!kFewForms) types.push_back(kAnyBlocks);
    for (const WeightType& type : types) {
      AddMatMul(type);
      Add(Shader::kMatMulStored, Joined({{"THREADS", 64}}, type.values));
      if (type.in_blocks) AddMatVecDot(type);
      if (type.in_blocks || type.is_half) AddMatMulCoop(type);
      if (type.has_warpgroups) AddMatMulWarpgroup(type);
    }
  }

  // Rows of blocks have whole chunks. As many chunks are under way as lowering has at most, which
  // costs short rows little; of blocks, for which there is matvec_dot, fewer, which compiles
  // sooner.
  void AddMatVec(const WeightType& type) {
    const uint32_t most_under_way = type.in_blocks ? 2 : 4;
    for (const uint32_t glu : {0U, 1U, 2U}) {
      const uint32_t halves = glu == 1 ? 2 : 1;
      for (const uint32_t checked : {0U, 1U}) {
        if (type.in_blocks && checked == 1) continue;
        const Values values = Joined({{"THREADS", 128},
                                      {"kGlu", glu},
                                      {"kStaged", 0},
                                      {"kColumns", 4},
                                      {"kChecked", checked}},
                                     type.values);
        for (const uint32_t nr : {1U, 2U, 4U}) {
          const bool dense = nr > 1 || glu == 2;
          if (halves * nr > 4) continue;  // lowering has two rows of a gated product at most
          AddMatVec(values, nr, 1, std::max(most_under_way / halves / nr, 1U), dense);
        }
        for (const uint32_t nt : {2U, 4U}) AddMatVec(values, 1, nt, 1, true);
      }
    }
  }

  // Experts have one row of weights and of x at a time.
  void AddMatVec(Values values, uint32_t nr, uint32_t nt, uint32_t unroll, bool dense) {
    values.push_back({"kNr", nr});
    values.push_back({"kNt", nt});
    if (dense) values.push_back(kDenseMode);
    Form& form = Add(Shader::kMatVec, values);
    form.chosen = ConstantsOf(Shader::kMatVec, {{"kUnroll", unroll}});
  }

  void AddMatMul(const WeightType& type) {
    constexpr uint32_t kMostRows = 64;
    for (const uint32_t glu : {0U, 1U}) {
      Form& form = Add(Shader::kMatMul, Joined({{"kGlu", glu}}, type.values), 256);
      form.sizes = ConstantsOf(Shader::kMatMul, {{"kTile", kMostRows}});
      Limit(form, {"kTile"}, kMostRows);
    }
  }

  // Products of one row, and of each of several with an adapter, whose rows have to fit shared
  // memory together. Others of several rows have forms of their own. Rarely used types share the
  // forms for any type; q4_k cannot, because its sums are added in another order.
  void AddMatVecDot(const WeightType& type) {
    constexpr auto kDense = static_cast<uint32_t>(gpu::ExpertLayout::kNoExperts);
    constexpr auto kStacked = static_cast<uint32_t>(gpu::ExpertLayout::kStacked);
    constexpr auto kSideBySide = static_cast<uint32_t>(gpu::ExpertLayout::kSideBySide);
    const bool has_several = type.is_any() || type.is_q4_k || kFewForms;
    for (const uint32_t halves : {1U, 2U}) {
      for (const uint32_t experts : {kDense, kStacked, kSideBySide}) {
        // Sums over experts are not gated.
        if (experts == kSideBySide && halves == 2) continue;
        const Values values = Joined({{"kHalves", halves}, {"kExperts", experts}}, type.values);
        const Values plain = Joined(values, {{"kAdapted", 0}});
        if (experts == kDense && (type.is_any() || type.is_often_adapted)) {
          AddMatVecRows(plain, type);
        }
        const uint32_t most = has_several && experts == kDense ? 4 : 1;
        if (type.is_any()) {
          for (uint32_t own = 1; own <= most; ++own) AddOpenMatVecDot(values, own);
          continue;
        }
        const bool has_short = type.is_q4_k && halves == 1 && experts == kDense;
        if (has_short) AddMatVecDotOf(plain, 1, 1, kShortColumns);
        AddMatVecDot(plain, 1, experts != kSideBySide);
        if (experts == kDense && type.is_often_adapted) {
          AddMatVecDot(Joined(values, {{"kAdapted", 1}}), most, /*has_norms=*/true);
        }
      }
    }
  }

  // Several rows on tensor cores: as many columns as shared memory has room for, of short rows all.
  // Forms for any type, which are slow to compile, have one form for rows of all lengths.
  void AddMatVecRows(const Values& values, const WeightType& type) {
    for (const uint32_t own : kMatrixRows) {
      for (const bool is_short : {true, false}) {
        if (is_short && type.is_any()) continue;
        const uint32_t columns = is_short ? kShortColumns : SliceOf(own);
        const uint32_t turns = is_short ? 1 : kMostTurns;
        Form& form =
            Add(Shader::kMatVecDot, Joined({{"THREADS", kRowThreads}, {"kOwnRows", own}}, values));
        form.file = "matvec_rows.cuh";
        form.chosen =
            ConstantsOf(Shader::kMatVecDot, {{"kMaxColumns", columns}, {"kTurns", turns}});
        form.shared_bytes = BytesOfRows(own, columns, type.is_q4_k);
        form.open = type.is_any();
        if (is_short) Limit(form, {"kMaxColumns"}, columns);
        Limit(form, {"kTurns"}, turns);
      }
    }
  }

  // A norm of a short row takes fewer registers.
  void AddMatVecDot(const Values& values, uint32_t most_own, bool has_norms) {
    if (has_norms) AddMatVecDotOf(values, 1, 1);
    for (uint32_t own = 1; own <= most_own; ++own) AddMatVecDotOf(values, kMostTurns, own);
  }

  void AddOpenMatVecDot(const Values& values, uint32_t own) {
    Form& form = AddMatVecDotOf(values, kMostTurns, own);
    form.open = true;
    form.sizes = ConstantsOf(Shader::kMatVecDot, {{"kAdapted", 1}});
  }

  // Columns of rows in general, and of those that are short (kIsShort in matvec_dot.cuh).
  static constexpr uint32_t kMostColumns = 18432, kShortColumns = 2048;
  Form& AddMatVecDotOf(const Values& values, uint32_t turns, uint32_t own,
                       uint32_t most_columns = kMostColumns) {
    Form& form =
        Add(Shader::kMatVecDot, Joined({{"THREADS", kRowThreads}, {"kOwnRows", own}}, values));
    form.file = "matvec_dot.cuh";
    form.chosen =
        ConstantsOf(Shader::kMatVecDot, {{"kMaxColumns", most_columns / own}, {"kTurns", turns}});
    Limit(form, {"kMaxColumns"}, most_columns / own);
    Limit(form, {"kTurns"}, turns);
    return form;
  }

  static constexpr Value kDenseMode{"kMode", 0};

  // Two steps of 64 terms of all parts together, with a vector of 8 numbers between rows.
  static uint32_t CoopBytes(const gpu::CoopTile& tile, uint32_t parts) {
    constexpr uint32_t kSteps = 2, kVectorBytes = 16;
    const auto vectors = static_cast<uint32_t>(gpu::kCoopTerms) / parts / 8 + 1;
    return kSteps * (tile.rows * parts + tile.columns) * vectors * kVectorBytes;
  }

  // Products that take an activation as two numbers share the forms for any type of blocks.
  void AddMatMulCoop(const WeightType& type) {
    const bool is_any = type.values.empty();
    for (const gpu::CoopTile& tile : kCoopTiles) {
      for (const uint32_t glu : {0U, 1U}) {
        for (const uint32_t parts : {1U, 2U}) {
          if (parts == 2 && !is_any && !type.is_half) continue;
          for (const uint32_t adapted : {0U, 1U}) {
            if (adapted == 1 && parts == 2) continue;
            Values values = Joined({{"THREADS", tile.threads()},
                                    {"kGlu", glu},
                                    {"kTile", tile.rows},
                                    {"kColumns", tile.columns},
                                    {"kSubgroupRows", tile.subgroup_rows},
                                    {"kSubgroupColumns", tile.subgroup_columns},
                                    {"kParts", parts},
                                    {"kAdapted", adapted}},
                                   type.values);
            if (adapted == 1) values.push_back(kDenseMode);
            Form& form = Add(Shader::kMatMulCoop, values);
            form.file = "matmul_coop.cuh";
            form.shared_bytes = CoopBytes(tile, parts);
            form.open = is_any;
          }
        }
      }
    }
  }

  // Stages of x, two bytes for each of 128 terms, at a multiple of 1,024 bytes.
  static uint32_t WarpgroupBytes(const gpu::CoopTile& tile) {
    constexpr uint32_t kAlignment = 1024, kStages = 6;
    return kAlignment + kStages * static_cast<uint32_t>(gpu::kWarpgroupTerms) * 2 * tile.rows;
  }

  void AddMatMulWarpgroup(const WeightType& type) {
    for (const gpu::CoopTile& tile : kWarpgroupTiles) {
      for (const uint32_t glu : {0U, 1U}) {
        for (const uint32_t adapted : {0U, 1U}) {
          const gpu::WarpgroupGemm how{tile, 1, {}};
          Values values = Joined({{"THREADS", how.threads()},
                                  {"kGlu", glu},
                                  {"kTile", tile.rows},
                                  {"kColumns", tile.columns},
                                  {"kAdapted", adapted}},
                                 type.values);
          if (adapted == 1) values.push_back(kDenseMode);
          Form& form = Add(Shader::kMatMulWarpgroup, values);
          form.file = "matmul_warpgroup.cuh";
          form.shared_bytes = WarpgroupBytes(tile);
        }
      }
    }
  }

  void AddPlainProducts() {
    for (const uint32_t rows : {16U, 32U, 64U}) {
      for (const uint32_t columns : {16U, 32U, 64U}) {
        for (const uint32_t depth : {16U, 32U}) {
          Add(Shader::kMatMulPlain, {{"THREADS", std::max(rows * columns / 16, 32U)},
                                     {"kTileRows", rows},
                                     {"kTileColumns", columns},
                                     {"kDepth", depth}});
        }
      }
    }
  }

  // ---- attention: forms for the heads of the models; open forms take any shape

  // Query heads that share a key, times rows of queries.
  void AddAttention(uint32_t dim) {
    const uint32_t most = std::min(16U, 4096 / dim);
    for (uint32_t group = 1; group <= most; group *= 2) {
      for (const uint32_t rows : {1U, most / group}) {
        Add(Shader::kAttention,
            {{"THREADS", 128}, {"kBatch", 8}, {"kGroup", group}, {"kRows", rows}, {"kDim", dim}});
        if (most == group) break;
      }
    }
  }

  // Attention of one row (ops_attention_row.cc): heads of usual lengths, then any of usual types,
  // then any.
  void AddRowAttention() {
    constexpr uint32_t kThreads = 256, kSplit = 16, kMostDim = 4 * kThreads;
    const Values values{{"THREADS", kThreads}, {"kSplit", kSplit}};
    for (const uint32_t group : {1U, 2U}) {
      const Values of_group = Joined({{"kGroup", group}}, values);
      for (const uint32_t dim : {128U, 256U, 512U}) {
        if (kFewForms && dim == 128) continue;
        const uint32_t teams = std::min(4 * kThreads / dim, kThreads / kSplit);
        const Values shape = Joined({{"kDim", dim}, {"kTeams", teams}}, of_group);
        AddRowAttention(Joined(CacheOf(DType::kF16, DType::kF16), shape));
        // Heads of 128 dims, which only Gemma 3 27B has, leave blocks to the open forms.
        if (dim == 128) continue;
        for (const Values& types : BlockCaches()) AddRowAttention(Joined(types, shape));
      }
      for (const Values& types :
           {CacheOf(DType::kF16, DType::kF16), CacheOf(DType::kF32, DType::kF32), Values{}}) {
        Form& any = Add(Shader::kAttentionRow, Joined(types, of_group));
        any.file = kRowAttention;
        any.open = true;
        Limit(any, {"kDim"}, kMostDim);
      }
    }
  }

  // Queries of a block, of heads of 256 and 512 dims.
  void AddHalfAttention() {
    for (const auto& [queries, dim] : {std::pair{64U, 256U}, {32U, 256U}, {32U, 512U}}) {
      const Values values{{"THREADS", gpu::kernels::AttentionHalfCoop::kThreads},
                          {"kQueries", queries},
                          {"kDim", dim}};
      const auto add = [&](const Values& types, uint32_t units) {
        Add(Shader::kAttentionHalfCoop, Joined(Joined({{"kUnits", units}}, types), values)).file =
            "attention_half_coop.cuh";
      };
      for (const uint32_t units : {0U, 1U}) add(CacheOf(DType::kF16, DType::kF16), units);
      for (const Values& types : BlockCaches()) add(types, 0);
      add({}, 0);
    }
  }

  // The caches in blocks that there are forms for. Other mixtures take forms that read the types
  // when they run.
  static std::vector<Values> BlockCaches() {
    std::vector<Values> caches = {CacheOf(DType::kQ8_0, DType::kQ8_0)};
    if (kFewForms) return caches;
    caches.push_back(CacheOf(DType::kQ8_0, DType::kQ4_0));
    caches.push_back(CacheOf(DType::kQ4_0, DType::kQ4_0));
    return caches;
  }
  static Values CacheOf(DType keys, DType values) {
    return {{"kKeyType", static_cast<uint32_t>(keys)},
            {"kValueType", static_cast<uint32_t>(values)}};
  }
  // Adds the form for plans whose steps all have one row, and the form for the others.
  void AddRowAttention(const Values& values) {
    for (const bool one_row : {true, false}) {
      Add(Shader::kAttentionRow, one_row ? Joined({{"kOneRow", 1}}, values) : values).file =
          kRowAttention;
    }
  }

  void AddAttention() {
    for (const uint32_t dim : {128U, 256U, 512U}) {
      if (!kFewForms || dim == 256) AddAttention(dim);
    }
    Form& tiles = Add(Shader::kAttention, {{"THREADS", 128}, {"kBatch", 8}});
    tiles.open = true;
    // Queries of a workgroup: 16 at most, with 4,096 elements in all.
    tiles.sizes = ConstantsOf(Shader::kAttention, {{"kGroup", 1}, {"kRows", 16}, {"kDim", 256}});
    Limit(tiles, {"kGroup", "kRows"}, 16);
    Limit(tiles, {"kGroup", "kRows", "kDim"}, 4096);

    AddRowAttention();
    AddHalfAttention();
    Form& stats = Add(Shader::kAttentionStats, {{"THREADS", 64}});
    stats.open = true;
    stats.sizes = ConstantsOf(Shader::kAttentionStats, {{"kGroup", 8}, {"kDim", 512}});
    Limit(stats, {"kGroup"}, 8);
    Limit(stats, {"kGroup", "kDim"}, 4096);

    for (const uint32_t own : {8U, 16U, 32U}) {
      Form& q = Add(Shader::kAttentionGradQ, {{"THREADS", 256}, {"kPairs", own}});
      q.open = true;
      Limit(q, {"kPairs", "kDim"}, 8192);
      Form& kv = Add(Shader::kAttentionGradKv, {{"THREADS", 256}, {"kKeys", own}});
      kv.open = true;
      Limit(kv, {"kKeys", "kDim"}, 8192);
    }
  }

  // ---- all others read their constants

  void AddOthers() {
    constexpr uint32_t kUsual = 256;
    // Threads of kernels whose workgroups walk long rows.
    constexpr uint32_t kWide = 1024;
    for (const gpu::RowsOp op :
         {gpu::RowsOp::kRmsNorm, gpu::RowsOp::kResidualNorm, gpu::RowsOp::kTwoNorms}) {
      const Values norm{{"kOp", static_cast<uint32_t>(op)}, {"kNarrow", 0}};
      Add(Shader::kRows, norm, kWide).file = "rows.cuh";
    }
    for (const Shader shader :
         {Shader::kRows, Shader::kRope, Shader::kArgMax, Shader::kLoss, Shader::kRowGrad,
          Shader::kScatter, Shader::kScan, Shader::kMoeSort}) {
      Add(shader, {}, kWide);
    }
    for (const Shader shader :
         {Shader::kTopK, Shader::kTypicalP, Shader::kRowSample, Shader::kEntropyAccept}) {
      // The longest list that lowering has in shared memory.
      constexpr uint32_t kList = 2048;
      Form& form = Add(shader, {}, kWide);
      form.sizes = ConstantsOf(shader, {{"kShared", kList}});
      Limit(form, {"kShared"}, kList);
    }
    Form& narrow = Add(Shader::kNarrowProduct, {}, kUsual);
    narrow.open = true;
    Limit(narrow, {"kColumns"}, gpu::kMostNarrowColumns);
    for (const Shader shader : gpu::AllShaders()) {
      if (!has_.contains(shader) && IsUsed(shader)) Add(shader, {}, kUsual);
    }
  }

  // Kernels that other backends have for their devices.
  static bool IsUsed(Shader shader) {
    switch (shader) {
      case Shader::kMatMulStoredCoop:
      case Shader::kAttentionCoop:
      case Shader::kAttentionFreshCoop:
        return false;
      default:
        return true;
    }
  }

  static constexpr const char* kRowAttention = "attention_row.cuh";
  std::map<Shader, bool> has_;
};

bool Fits(const Form& form, const gpu::PipelineKey& key) {
  const auto has = [&](const Constant& constant) {
    return key.constants.at(constant.id) == constant.value;
  };
  const auto keeps = [&](const Bound& bound) {
    uint64_t product = 1;
    for (const size_t id : bound.ids) product *= key.constants.at(id);
    return product <= bound.most;
  };
  return form.shader == key.shader && std::ranges::all_of(form.fixed, has) &&
         std::ranges::all_of(form.bounds, keeps);
}

}  // namespace

bool HasWarpgroupFormsFor(DType type) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return HasFormsFor(type);
    default:
      return false;
  }
}

bool HasFormsFor(DType type) { return gpu::IsMatrixType(type) && (!kFewForms || IsUsual(type)); }

uint32_t BytesOfMatrixRows(uint32_t rows) {
  // shared_squares, in addition to what a launch gives
  const uint32_t squares = 2 * rows * (kRowThreads / 32) * sizeof(float);
  return BytesOfRows(rows, SliceOf(rows), /*pairs=*/false) + squares;
}

const std::vector<Form>& AllForms() {
  static const List kList;
  return kList.forms;
}

size_t FindForm(const gpu::PipelineKey& key) {
  const std::vector<Form>& all = AllForms();
  const auto found = std::ranges::find_if(all, [&](const Form& form) { return Fits(form, key); });
  return static_cast<size_t>(found - all.begin());
}

std::string TextOf(const gpu::PipelineKey& key) {
  std::string text(gpu::NameOf(key.shader));
  for (const uint32_t constant : key.constants) text += " " + std::to_string(constant);
  return text;
}

}  // namespace rullama::cuda
