// Helpers with which the thunks of export.h return results to the host: errors go into the caller's
// record, structs are cut to the caller's size. Part of the SDK's machinery; plugin authors need
// export.h only.
#pragma once

#include <rullama/abi/rullama_abi.h>
#include <rullama/sdk/backend.h>
#include <rullama/sdk/op_scope.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>

namespace rullama::sdk::internal {

// Longest prefix of `text` of at most `capacity` bytes that does not end inside a UTF-8 sequence.
inline std::string_view CutUtf8(std::string_view text, size_t capacity) noexcept {
  if (text.size() <= capacity) return text;
  size_t size = capacity;
  const auto is_continuation = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  while (size > 0 && is_continuation(size)) --size;
  return text.substr(0, size);
}

// Terminates; `capacity` > 0 counts the terminator. A text that is cut ends in "...".
inline void CopyText(char* out, size_t capacity, std::string_view text) noexcept {
  constexpr std::string_view kCut = "...";
  const bool marked = text.size() >= capacity && capacity > kCut.size();
  const std::string_view copied = CutUtf8(text, capacity - 1 - (marked ? kCut.size() : 0));
  char* end = std::copy(copied.begin(), copied.end(), out);
  if (marked) end = std::copy(kCut.begin(), kCut.end(), end);
  *end = '\0';
}

// Fills what fits into the caller's record. The text is "<function>: <what>", without allocating.
inline void FillError(rl_error* error, rl_code code, std::string_view function,
                      std::string_view what, uint32_t op_index, int32_t device_code) noexcept {
  if (error == nullptr) return;
  const size_t room = error->struct_size;
  const auto has = [room](size_t offset, size_t size) { return room >= offset + size; };
  if (has(offsetof(rl_error, code), sizeof(error->code))) error->code = code;
  if (has(offsetof(rl_error, op_index), sizeof(error->op_index))) error->op_index = op_index;
  if (has(offsetof(rl_error, device_code), sizeof(error->device_code))) {
    error->device_code = device_code;
  }
  constexpr size_t kText = offsetof(rl_error, message);
  if (room <= kText) return;
  const size_t capacity = std::min(room - kText, size_t{RL_ERROR_TEXT});
  constexpr std::string_view kSeparator = ": ";
  const std::string_view prefix = CutUtf8(function, capacity - 1);
  std::copy(prefix.begin(), prefix.end(), error->message);
  size_t used = prefix.size();
  if (used + kSeparator.size() < capacity) {
    std::copy(kSeparator.begin(), kSeparator.end(), error->message + used);
    used += kSeparator.size();
  }
  CopyText(error->message + used, capacity - used, what);
}

// Runs `body` and turns whatever it throws into a code and the caller's error record.
template <typename Body>
int32_t Guard(rl_error* error, std::string_view function, Body&& body) noexcept {
  failed_op = RL_NO_OP;
  const auto fail = [&](rl_code code, std::string_view what, uint32_t op, int32_t device_code) {
    FillError(error, code, function, what, op == RL_NO_OP ? failed_op : op, device_code);
    return int32_t{code};
  };
  try {
    body();
    return RL_OK;
  } catch (const Error& e) {
    // "OK" is not an error; whoever threw it made a mistake.
    const rl_code code = e.code() == RL_OK ? RL_INTERNAL : e.code();
    return fail(code, e.what(), e.op_index(), e.device_code());
  } catch (const std::bad_alloc&) {
    return fail(RL_OUT_OF_MEMORY, "out of host memory", RL_NO_OP, 0);
  } catch (const std::exception& e) {
    return fail(RL_INTERNAL, e.what(), RL_NO_OP, 0);
  } catch (...) {
    return fail(RL_INTERNAL, "an exception that is not a std::exception", RL_NO_OP, 0);
  }
}

inline void Require(bool condition, const char* what) {
  if (!condition) throw Error(RL_INVALID_ARGUMENT, what);
}

// Copies as much of `value` as the caller's struct has room for. `smallest` is the size of the
// struct in version 1.0.
template <typename T>
void StoreSized(T* out, T value, size_t smallest) {
  static_assert(std::is_trivially_copyable_v<T>);
  Require(out != nullptr, "the result struct is missing");
  const uint32_t size = std::min(out->struct_size, static_cast<uint32_t>(sizeof(T)));
  Require(size >= smallest, "struct_size of the result struct is below that of version 1.0");
  value.struct_size = size;
  std::memcpy(out, &value, size);
}

// The pieces of `object` from its first to its last member of version 1.0: "at least this big".
#define RL_SIZE_UP_TO(type, last) (offsetof(type, last) + sizeof(type::last))

inline void RequireGraph(const rl_graph* graph) {
  Require(graph != nullptr && graph->struct_size >= RL_SIZE_UP_TO(rl_graph, name),
          "the graph is missing or smaller than that of version 1.0");
  Require(graph->value_size >= RL_SIZE_UP_TO(rl_value, bytes) &&
              graph->op_size >= RL_SIZE_UP_TO(rl_op, attrs),
          "the graph's elements are smaller than those of version 1.0");
}

inline void RequireWeight(const rl_weight_desc* desc) {
  Require(desc != nullptr && desc->struct_size >= RL_SIZE_UP_TO(rl_weight_desc, bytes),
          "the weight description is missing or smaller than that of version 1.0");
  Require(desc->rank >= 1 && desc->rank <= RL_MAX_RANK, "the weight's rank is not 1 to 4");
}

// Gives an object of the plugin to the host as an opaque handle of type H.
template <typename H, typename Base, typename Made>
void HandOut(H** handle, std::unique_ptr<Made> object, const char* method) {
  Require(handle != nullptr, "the result handle is missing");
  if (object == nullptr) throw Error(RL_INTERNAL, std::string(method) + " returned null");
  Base* base = object.release();
  *handle = reinterpret_cast<H*>(base);
}

}  // namespace rullama::sdk::internal
