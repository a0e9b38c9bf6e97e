#include "core/base/alternate_stack.h"

#include <ucontext.h>

#include <cstdint>
#include <new>

namespace rullama {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
// A fault this near to the stack pointer is a stack that is full: frames are smaller.
constexpr uintptr_t kFrameBytes = uintptr_t{64} << 10;

}  // namespace

AlternateStack::AlternateStack() {
  stack_t present{};
  if (::sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
  memory_.reset(new (std::nothrow) std::byte[kStackBytes]);
  if (!memory_) return;
  stack_t stack{};
  stack.ss_sp = memory_.get();
  stack.ss_size = kStackBytes;
  if (::sigaltstack(&stack, nullptr) != 0) memory_.reset();
}

AlternateStack::~AlternateStack() {
  if (!memory_) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
}

bool StackIsFull(int signal, const siginfo_t* info, [[maybe_unused]] const void* context) {
  if (signal != SIGSEGV || info == nullptr || context == nullptr) return false;
  uintptr_t stack = 0;
#if defined(__x86_64__)
  stack =
      static_cast<uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
#elif defined(__aarch64__)
  stack = static_cast<uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.sp);
#else
  return false;
#endif
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  return address + kFrameBytes > stack && address < stack + kFrameBytes;
}

}  // namespace rullama
