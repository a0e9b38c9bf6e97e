#include "backends/cpu/kernels/kernel_table.h"
#include "backends/cpu/kernels/level_tables.h"
#include "backends/cpu/kernels/simd.h"

#ifdef RULLAMA_WORD_DOTS
#include "backends/cpu/kernels/stored_words.h"
#endif

namespace rullama::cpu {

template <>
void AddStoredProducts<kIsa>([[maybe_unused]] KernelTable& table) {
#ifdef RULLAMA_WORD_DOTS
  table.add_stored_product = &AddStoredWords;
  table.stored_product_rounds = true;
  table.stored_scratch_bytes = sizeof(WordScratch) + kScratchAlignment;
#endif
}

}  // namespace rullama::cpu
