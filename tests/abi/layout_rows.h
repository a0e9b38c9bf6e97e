/* Checks a frozen layout in the compiler, and puts what the compiler saw into a table, so that C
 * and C++ can be compared with each other. Included once, by a source that is compiled as C11 and,
 * through a C++ source, as C++20, after the header that is checked and with its rows in LAYOUT_DEF.
 * A failing assertion means that what was built with an older header would break.
 */
#ifndef RULLAMA_TESTS_ABI_LAYOUT_ROWS_H_
#define RULLAMA_TESTS_ABI_LAYOUT_ROWS_H_

#include <assert.h>
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

static_assert(sizeof(void*) == 8 && sizeof(long) == 8, "the frozen numbers are those of LP64");

#define RL_MEMBER_SIZE(type, member) sizeof(((type*)0)->member)

/* Structs grow at their ends. A declaration of another type than that of the header does not
 * compile. */
#define RL_LAYOUT_STRUCT(type, size, alignment)               \
  static_assert(sizeof(type) >= (size), #type " has shrunk"); \
  static_assert(RL_ALIGNOF(type) == (alignment), #type " changed its alignment");
#define RL_LAYOUT_MEMBER(type, member, offset, size)                             \
  static_assert(offsetof(type, member) == (offset), #type "." #member " moved"); \
  static_assert(RL_MEMBER_SIZE(type, member) == (size), #type "." #member " changed its size");
#define RL_LAYOUT_NUMBER(name, value) static_assert((name) == (value), #name " changed");
#define RL_LAYOUT_CALLBACK(result, name, parameters) typedef result(*name) parameters;
#define RL_LAYOUT_FUNCTION(result, name, parameters) result name parameters;
#ifdef __cplusplus
extern "C" {
#endif
#include LAYOUT_DEF
#ifdef __cplusplus
}
#endif
#undef RL_LAYOUT_STRUCT
#undef RL_LAYOUT_MEMBER
#undef RL_LAYOUT_NUMBER
#undef RL_LAYOUT_CALLBACK
#undef RL_LAYOUT_FUNCTION

static const struct layout_row kRows[] = {
#define RL_LAYOUT_STRUCT(type, size, alignment) {#type, sizeof(type), RL_ALIGNOF(type)},
#define RL_LAYOUT_MEMBER(type, member, offset, size) \
  {#type "." #member, offsetof(type, member), RL_MEMBER_SIZE(type, member)},
#define RL_LAYOUT_NUMBER(name, value) {#name, (unsigned long long)(name), 0},
#define RL_LAYOUT_CALLBACK(result, name, parameters)
#define RL_LAYOUT_FUNCTION(result, name, parameters)
#include LAYOUT_DEF
};

const struct layout_row* LAYOUT_ROWS(size_t* count) {
  *count = sizeof(kRows) / sizeof(kRows[0]);
  return kRows;
}

#endif /* RULLAMA_TESTS_ABI_LAYOUT_ROWS_H_ */
