// How the languages of kernels spell what kernels.def declares. The rest of a dialect, the names in
// which common kernels (kernels/*.kernel) are written, is a header in the language itself:
// dialect.glsl, common.cl, dialect.cuh.
//
// A text has places for words: $name$. Each comment says which words its text has.
//
// Thread safety: none needed; constants.
#pragma once

#include <string_view>

namespace rullama::gpu {

struct Dialect {
  // ---- types of fields and of shared memory ----

  std::string_view address, dim, u32, i32, f32, f32x4, u32x4;

  // ---- declarations ----

  // A number: name, value.
  std::string_view number;
  // A specialisation constant: type, id, name, its value before specialisation, and `converted`:
  // the word that the host sets, as the type.
  std::string_view constant;
  // That word as an i32 or f32: word.
  std::string_view as_i32 = "", as_f32 = "";
  // A field: type, name.
  std::string_view field;
  // A field of records, the last one of arguments: type, name, count, and TYPE, the type in
  // capitals.
  std::string_view records;
  // A type of records: type, TYPE, fields, parameters, passed.
  std::string_view record;

  // ---- shared memory ----

  // A variable: type, name, dimension, which is [count] of an array and empty otherwise.
  std::string_view shared;
  // All variables of a kernel, and a kernel without any: variables.
  std::string_view shared_memory, no_shared_memory;

  // ---- arguments ----

  // The parameter of a kernel for an address that it may write, for one that it only reads, and how
  // either is passed on: name.
  std::string_view parameter, read_parameter, passed;
  // The same for a record: TYPE.
  std::string_view record_parameters, record_passed;
  // All arguments: fields, parameters, passed.
  std::string_view arguments;
};

// Needs common.glsl before it, and declares the push constants `p`.
inline constexpr Dialect kGlsl{
    .address = "uvec2",
    .dim = "Extent",
    .u32 = "uint",
    .i32 = "int",
    .f32 = "float",
    .f32x4 = "vec4",
    .u32x4 = "uvec4",
    .number = "const uint $name$ = $value$;\n",
    .constant = "layout(constant_id = $id$) const $type$ $name$ = $value$;\n",
    .field = "  $type$ $name$;\n",
    .records = "  uvec2 $name$;  // $type$[$count$]\n",
    .record = R"(struct $type$ {
$fields$};
layout(buffer_reference, std430, buffer_reference_align = 8) CONSTANT $type$At {
  $type$ v;
};
#define HAS_$TYPE$ 1
)",
    .shared = "shared $type$ shared_$name$$dimension$;\n",
    .shared_memory = "$variables$",
    .no_shared_memory = "",
    .parameter = "",
    .read_parameter = "",
    .passed = "",
    .record_parameters = "",
    .record_passed = "",
    .arguments = R"(#ifdef TASK
struct Push {
$fields$};
layout(buffer_reference, std430, buffer_reference_align = 16) CONSTANT PushAt {
  Push v;
};
// All of it is read at once, before anything waits.
Push p = PushAt(task_push).v;
#else
layout(push_constant, std430) uniform Push {
$fields$} p;
#endif
)",
};

// Needs common.cl before it. Constants are the options C1, C2, ... of the compiler. A kernel has a
// buffer for each address, and the struct Push, in which addresses are offsets. An optional record
// R is there if the kernel defines HAS_R as 1.
//
// Shared memory has to be declared in the kernel itself: a function gets it, like the arguments, as
// parameters, which LOCAL_ and ARGS_ declare and LOCAL and ARGS pass on. A form of a kernel that
// has none defines WITHOUT_LOCAL_MEMORY.
inline constexpr Dialect kOpenCl{
    .address = "Pointer",
    .dim = "Extent",
    .u32 = "uint",
    .i32 = "int",
    .f32 = "float",
    .f32x4 = "float4",
    .u32x4 = "uint4",
    .number = "#define $name$ $value$\n",
    .constant = "#define $name$ $converted$\n",
    .as_i32 = "((int)$word$)",
    .as_f32 = "as_float($word$)",
    .field = "  $type$ $name$;\n",
    .records = "#if HAS_$TYPE$\n  $type$ $name$;\n#endif\n",
    .record = R"(typedef struct {
$fields$} $type$;
#ifndef HAS_$TYPE$
#define HAS_$TYPE$ 0
#endif
#if HAS_$TYPE$
#define $TYPE$_PARAMETERS $parameters$
#define $TYPE$_PASSED $passed$
#else
#define $TYPE$_PARAMETERS
#define $TYPE$_PASSED
#endif
)",
    .shared = "  $type$ $name$$dimension$;\n",
    .shared_memory = R"(#ifdef WITHOUT_LOCAL_MEMORY
#define KERNEL KERNEL_ALONE
#else
typedef struct {
$variables$} LocalMemory;
#define LOCAL_ __local LocalMemory *local_memory,
#define LOCAL local_memory,
#define KERNEL KERNEL_WITH_LOCAL_MEMORY
#endif
)",
    .no_shared_memory = "#define LOCAL_\n#define LOCAL\n#define KERNEL KERNEL_ALONE\n",
    .parameter = "__global uchar *$name$_buffer, ",
    .read_parameter = "__global const uchar *$name$_buffer, ",
    .passed = "$name$_buffer, ",
    .record_parameters = "$TYPE$_PARAMETERS ",
    .record_passed = "$TYPE$_PASSED ",
    .arguments = R"(typedef struct {
$fields$} Push;
#define ARGUMENTS $parameters$const Push push CONSTANTS_PARAMETER
#define PASSED $passed$push CONSTANTS_PASSED
)",
};

// Needs dialect.cuh before it. Options of the compiler fix some constants: C1, C2, ... are words.
// The others are read from memory, and M1, M2, ... say for which values there is shared memory.
// Addresses are pointers, also those of records.
inline constexpr Dialect kCuda{
    .address = "Memory",
    .dim = "Extent",
    .u32 = "uint",
    .i32 = "int",
    .f32 = "float",
    .f32x4 = "float4",
    .u32x4 = "uint4",
    .number = "constexpr uint $name$ = $value$;\n",
    .constant =
        "#ifndef C$id$  // before specialisation $value$\n#define C$id$ CONSTANT($id$)\n"
        "#endif\n#define $name$ $converted$\n",
    .as_i32 = "int($word$)",
    .as_f32 = "as_float($word$)",
    .field = "  $type$ $name$;\n",
    .records = "  const $type$* $name$;  // [$count$]\n",
    .record = "struct $type$ {\n$fields$};\n#define HAS_$TYPE$ 1\n",
    .shared = "__shared__ $type$ shared_$name$$dimension$;\n",
    .shared_memory = R"(#undef CONSTANT
#define CONSTANT(id) M##id
$variables$#undef CONSTANT
#define CONSTANT(id) constants[id]
)",
    .no_shared_memory = "",
    .parameter = "",
    .read_parameter = "",
    .passed = "",
    .record_parameters = "",
    .record_passed = "",
    .arguments = "struct Push {\n$fields$};\n",
};

}  // namespace rullama::gpu
