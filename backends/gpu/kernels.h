// The arguments of kernels as structs with a field for each name in kernels.def:
//
//   kernels::Rope       the specialisation constants of the kernel, `threads` first
//   kernels::RopeArgs   its arguments
//
// A field without a default has to be given: leaving it out does not compile.
//
// Thread safety: none needed; plain data.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "backends/gpu/memory.h"

namespace rullama::gpu {

enum class Shader : uint8_t {
#define RL_KERNEL(file, Name, Arguments) k##Name,
#include "backends/gpu/kernels.def"
};

// Facts about a kernel for the host, in addition to its arguments.
struct KernelTraits {
  bool on_matrix_units = false;
  // Subgroups may skip a loop before a barrier.
  bool skips_loops = false;
};
inline constexpr KernelTraits kKernelTraits[] = {
#define RL_KERNEL(file, Name, Arguments) KernelTraits {
#define RL_TRAIT(name) .name = true,
#define RL_END_KERNEL \
  }                   \
  ,
#include "backends/gpu/kernels.def"
};
constexpr const KernelTraits& TraitsOf(Shader shader) {
  return kKernelTraits[static_cast<size_t>(shader)];
}

#define RL_ENUM(Name) enum class Name : uint32_t {
#define RL_ENUMERATOR(name, value) name = (value),
#define RL_END_ENUM \
  }                 \
  ;
#include "backends/gpu/kernels.def"

// An operand of a kernel: a value of the graph or scratch of the plan.
struct Operand {
  uint32_t value = RL_NO_VALUE;
  Scratch scratch{};
};

// NOLINTBEGIN(google-explicit-constructor): fields of arguments take what they stand for.

// Memory whose accesses order dispatches. A value of RL_NO_VALUE is a null pointer.
class BufferArgument {
 public:
  BufferArgument(uint32_t value) : operand_{.value = value} {}
  BufferArgument(const Scratch& scratch) : operand_{.scratch = scratch} {}
  BufferArgument(const Operand& operand) : operand_(operand) {}
  [[nodiscard]] const Operand& operand() const { return operand_; }

 private:
  Operand operand_;
};

// Memory whose accesses order nothing: no dispatch writes it, or no other one uses it.
class AddressArgument {
 public:
  AddressArgument(DeviceAddress address) : address_(address) {}
  [[nodiscard]] DeviceAddress address() const { return address_; }

 private:
  DeviceAddress address_;
};

// `times` a dimension.
class DimArgument {
 public:
  DimArgument(const rl_dim& dim, int64_t times = 1)
      : dim_{dim.constant * times, static_cast<int32_t>(dim.t * times),
             static_cast<int32_t>(dim.r * times)} {}
  [[nodiscard]] const rl_dim& dim() const { return dim_; }

 private:
  rl_dim dim_;
};

// 32 bits of an integer, a truth value, an enumerator or a type.
class WordArgument {
 public:
  template <typename T>
  requires std::integral<T> || std::is_enum_v<T> WordArgument(T value)
      : value_(static_cast<uint32_t>(value)) {}
  [[nodiscard]] uint32_t word() const { return value_; }

 private:
  uint32_t value_;
};

class FloatArgument {
 public:
  FloatArgument(float value) : value_(value) {}
  [[nodiscard]] uint32_t word() const { return std::bit_cast<uint32_t>(value_); }

 private:
  float value_;
};

// NOLINTEND(google-explicit-constructor)

namespace kernels {

// ---- what callers fill in: RopeArgs ------------------------------------------------------------

#define RL_RECORD(Name) struct Name {
#define RL_ARGUMENTS(Name) struct Name##Args {
#define RL_END(Name) \
  }                  \
  ;
#define RL_INPUT(name) BufferArgument name;
#define RL_OUTPUT(name) BufferArgument name;
#define RL_WEIGHTS(name) AddressArgument name;
#define RL_PRIVATE(name) AddressArgument name;
#define RL_OPTIONAL_INPUT(name) BufferArgument name = RL_NO_VALUE;
#define RL_OPTIONAL_OUTPUT(name) BufferArgument name = RL_NO_VALUE;
#define RL_OPTIONAL_WEIGHTS(name) AddressArgument name = 0;
#define RL_ROWS(name) DimArgument name;
#define RL_DIM(name) DimArgument name;
#define RL_U32(name) WordArgument name;
#define RL_I32(name) WordArgument name;
#define RL_F32(name) FloatArgument name;
#define RL_RECORDS(Record, name, count) std::array<Record, count> name;
#define RL_OPTIONAL_RECORD(Record, name) std::optional<Record> name = std::nullopt;
#include "backends/gpu/kernels.def"

// ---- as kernels read it: RopeLayout ------------------------------------------------------------

struct DimLayout {
  uint32_t constant, t, r;
};
#define RL_RECORD(Name) struct Name##Layout {
#define RL_ARGUMENTS(Name) \
  struct Name##Layout {    \
    DeviceAddress step;
#define RL_END(Name) \
  }                  \
  ;
#define RL_INPUT(name) DeviceAddress name;
#define RL_OUTPUT(name) DeviceAddress name;
#define RL_WEIGHTS(name) DeviceAddress name;
#define RL_PRIVATE(name) DeviceAddress name;
#define RL_OPTIONAL_INPUT(name) DeviceAddress name;
#define RL_OPTIONAL_OUTPUT(name) DeviceAddress name;
#define RL_OPTIONAL_WEIGHTS(name) DeviceAddress name;
#define RL_ROWS(name) DimLayout name;
#define RL_DIM(name) DimLayout name;
#define RL_U32(name) uint32_t name;
#define RL_I32(name) uint32_t name;
#define RL_F32(name) uint32_t name;
#define RL_RECORDS(Record, name, count) DeviceAddress name;
#define RL_OPTIONAL_RECORD(Record, name) DeviceAddress name;
#include "backends/gpu/kernels.def"

// ---- from the one to the other -----------------------------------------------------------------

// Packs a struct by what `packer` makes of each field and its offset (ArgumentPacker).
#define RL_RECORD(Name)                                       \
  template <typename Packer>                                  \
  Name##Layout Pack(const Name& from, const Packer& packer) { \
    using Layout = Name##Layout;                              \
    Layout to{};
#define RL_ARGUMENTS(Name)                                          \
  template <typename Packer>                                        \
  Name##Layout Pack(const Name##Args& from, const Packer& packer) { \
    using Layout = Name##Layout;                                    \
    Layout to{};                                                    \
    to.step = packer.Step();
#define RL_END(Name) \
  return to;         \
  }
#define RL_INPUT(name) to.name = packer.Input(from.name, offsetof(Layout, name));
#define RL_OUTPUT(name) to.name = packer.Output(from.name, offsetof(Layout, name));
#define RL_WEIGHTS(name) to.name = packer.Address(from.name, offsetof(Layout, name));
#define RL_PRIVATE(name) RL_WEIGHTS(name)
#define RL_OPTIONAL_INPUT(name) RL_INPUT(name)
#define RL_OPTIONAL_OUTPUT(name) RL_OUTPUT(name)
#define RL_OPTIONAL_WEIGHTS(name) RL_WEIGHTS(name)
#define RL_ROWS(name) to.name = packer.Rows(from.name, offsetof(Layout, name));
#define RL_DIM(name) to.name = packer.Dim(from.name, offsetof(Layout, name));
#define RL_U32(name) to.name = from.name.word();
#define RL_I32(name) to.name = from.name.word();
#define RL_F32(name) to.name = from.name.word();
#define RL_RECORDS(Record, name, count) \
  to.name = packer.template Records<Record##Layout>(from.name, offsetof(Layout, name));
#define RL_OPTIONAL_RECORD(Record, name) RL_RECORDS(Record, name, 1)
#include "backends/gpu/kernels.def"

// ---- specialisation constants: Rope ------------------------------------------------------------

#define RL_KERNEL(file, Name, Arguments)               \
  struct Name {                                        \
    static constexpr Shader kShader = Shader::k##Name; \
    using Args = Arguments##Args;                      \
    WordArgument threads;
#define RL_END_KERNEL \
  }                   \
  ;
#define RL_NUMBER(name, value) static constexpr uint32_t name = value;
#define RL_CONSTANT_U32(name, value) WordArgument name;
#define RL_CONSTANT_I32(name, value) WordArgument name;
#define RL_CONSTANT_F32(name, value) FloatArgument name;
#define RL_CAPACITY(name, value) WordArgument name;
#include "backends/gpu/kernels.def"

// The values of the constants, in the order of their ids.
#define RL_KERNEL(file, Name, Arguments)                         \
  inline std::vector<uint32_t> ConstantsOf(const Name& kernel) { \
    return {                                                     \
      kernel.threads.word()
#define RL_END_KERNEL \
  }                   \
  ;                   \
  }
#define RL_CONSTANT_U32(name, value) , kernel.name.word()
#define RL_CONSTANT_I32(name, value) , kernel.name.word()
#define RL_CONSTANT_F32(name, value) , kernel.name.word()
#define RL_CAPACITY(name, value) , kernel.name.word()
#include "backends/gpu/kernels.def"

}  // namespace kernels
}  // namespace rullama::gpu
