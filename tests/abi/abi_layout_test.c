/* The layout of versions 1.0 to 1.2, checked by the compiler: this file is compiled as C11 and,
 * through abi_layout_test.cc, as C++20. A failing assertion means that plugins in the field would
 * break. What the compiler saw is also put into a table, so that C and C++ can be compared with
 * each other. */
#include "tests/abi/abi_layout_test.h"

#include <assert.h>
#include <rullama/abi/rullama_abi.h>
#include <stddef.h>

static_assert(sizeof(void*) == 8 && sizeof(long) == 8, "the frozen numbers are those of LP64");

#define RL_MEMBER_SIZE(type, member) sizeof(((type*)0)->member)

/* Structs grow at their ends. */
#define RL_LAYOUT_STRUCT(type, size, alignment)               \
  static_assert(sizeof(type) >= (size), #type " has shrunk"); \
  static_assert(RL_ALIGNOF(type) == (alignment), #type " changed its alignment");
#define RL_LAYOUT_MEMBER(type, member, offset, size)                             \
  static_assert(offsetof(type, member) == (offset), #type "." #member " moved"); \
  static_assert(RL_MEMBER_SIZE(type, member) == (size), #type "." #member " changed its size");
#define RL_LAYOUT_NUMBER(name, value) static_assert((name) == (value), #name " changed");
#include "tests/abi/layout.def"

static const struct layout_row kRows[] = {
#define RL_LAYOUT_STRUCT(type, size, alignment) {#type, sizeof(type), RL_ALIGNOF(type)},
#define RL_LAYOUT_MEMBER(type, member, offset, size) \
  {#type "." #member, offsetof(type, member), RL_MEMBER_SIZE(type, member)},
#define RL_LAYOUT_NUMBER(name, value) {#name, (unsigned long long)(name), 0},
#include "tests/abi/layout.def"
};

const struct layout_row* LAYOUT_ROWS(size_t* count) {
  *count = sizeof(kRows) / sizeof(kRows[0]);
  return kRows;
}
