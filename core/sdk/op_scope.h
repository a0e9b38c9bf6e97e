// Names the op at work, so that a failure deep inside a kernel builder still tells the user which
// op of the graph it was about:
//
//   for (uint32_t i = 0; i < graph.op_count(); ++i) {
//     const sdk::OpScope scope(i);
//     Build(graph, graph.op(i));   // whatever is thrown here is reported with op i
//   }
//
// Plan::Execute may use it as well, with the indices of the graph that the plan was compiled from.
//
// An sdk::Error that carries its own op index keeps it. Scopes nest; the innermost that was left by
// an exception counts. Thread safety: per thread; an exception that is carried from a worker thread
// to the calling one has to carry its op index itself.
#pragma once

#include <rullama/abi/rullama_abi.h>

#include <cstdint>
#include <exception>

namespace rullama::sdk {

namespace internal {
// The op whose scope an exception left in this call; reset by the thunks of export.h.
inline thread_local uint32_t failed_op = RL_NO_OP;
}  // namespace internal

class OpScope {
 public:
  explicit OpScope(uint32_t op_index) noexcept
      : op_index_(op_index), exceptions_(std::uncaught_exceptions()) {}
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;
  ~OpScope() {
    const bool unwinding = std::uncaught_exceptions() > exceptions_;
    if (unwinding && internal::failed_op == RL_NO_OP) internal::failed_op = op_index_;
  }

 private:
  uint32_t op_index_;
  int exceptions_;
};

}  // namespace rullama::sdk
