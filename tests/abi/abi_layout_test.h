/* What a compiler made of the ABI: one row for each struct, member and number of layout.def.
 */
#ifndef RULLAMA_TESTS_ABI_ABI_LAYOUT_TEST_H_
#define RULLAMA_TESTS_ABI_ABI_LAYOUT_TEST_H_

#include <stddef.h>

struct layout_row {
  const char* name;
  unsigned long long first;  /* size, offset, value */
  unsigned long long second; /* alignment, size, 0 */
};

#ifdef __cplusplus
#define RL_ALIGNOF(type) alignof(type)
#define LAYOUT_ROWS LayoutRowsCxx
extern "C" const struct layout_row* LayoutRowsC(size_t* count);
#else
#define RL_ALIGNOF(type) _Alignof(type)
#define LAYOUT_ROWS LayoutRowsC
#endif

const struct layout_row* LAYOUT_ROWS(size_t* count);

#endif /* RULLAMA_TESTS_ABI_ABI_LAYOUT_TEST_H_ */
