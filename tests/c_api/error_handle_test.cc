// The border of the C interface: what a body returns or throws, also when memory is short.
#include "engine/c_api/error_handle.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

namespace {
thread_local bool memory_is_short = false;

// Not inlined: gcc would take free() for a mistake where it sees that operator new was called.
[[gnu::noinline]] void Free(void* memory) noexcept { std::free(memory); }
}  // namespace

void* operator new(std::size_t bytes) {
  void* memory = memory_is_short ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { Free(memory); }

namespace rullama::c_api {
namespace {

constexpr std::string_view kLong = "a text that is longer than what a string holds without memory";

struct Reported {
  rullama_code code;
  std::string id, message, hint, text;
};

template <typename Body>
Reported Report(Body body, bool short_of_memory = false) {
  rullama_error* error = nullptr;
  memory_is_short = short_of_memory;
  const rullama_code code = AtBorder(&error, body);
  memory_is_short = false;
  Reported reported{code, rullama_error_id(error), rullama_error_message(error),
                    rullama_error_hint(error), rullama_error_text(error)};
  EXPECT_EQ(rullama_error_code(error), code);
  rullama_error_free(error);
  return reported;
}

Status Fails(std::string_view message) {
  return MakeError(ErrorKind::kIo, "io.open", "{}", message);
}

TEST(ErrorHandle, SplitsWhatToDoFromWhatWasFound) {
  const Reported reported = Report([] { return Fails("it's closed; open it"); });
  EXPECT_EQ(reported.code, RULLAMA_ERROR_IO);
  EXPECT_EQ(reported.id, "io.open");
  EXPECT_EQ(reported.message, "it's closed");
  EXPECT_EQ(reported.hint, "open it");
  EXPECT_EQ(reported.text, "it's closed; open it [io.open]");
}

TEST(ErrorHandle, SplitsAtTheLastSemicolonThatIsNotQuoted) {
  const auto hint_of = [](std::string_view message) {
    return Report([message] { return Fails(message); }).hint;
  };
  EXPECT_EQ(hint_of("a; b; c"), "c");
  EXPECT_EQ(hint_of("no 'a; b'"), "");
  EXPECT_EQ(hint_of("no 'a; b'; isn't it 'c'?"), "isn't it 'c'?");
  EXPECT_EQ(hint_of("nothing"), "");
  EXPECT_EQ(hint_of(""), "");
}

TEST(ErrorHandle, ExceptionsBecomeErrors) {
  const Reported standard =
      Report([]() -> Status { throw std::runtime_error("odd weather today"); });
  EXPECT_EQ(standard.code, RULLAMA_ERROR_RUNTIME);
  EXPECT_EQ(standard.id, "run.exception");
  EXPECT_NE(standard.message.find("odd weather today"), std::string::npos);
  EXPECT_EQ(Report([]() -> Status { throw 7; }).id, "run.exception");
  EXPECT_EQ(Report([]() -> Status { throw std::bad_alloc(); }).id, "memory.host");
}

TEST(ErrorHandle, ErrorsNeedNoMemory) {
  const auto exception = std::make_exception_ptr(std::runtime_error(std::string(kLong)));
  for (const Reported& reported :
       {Report([]() -> Status { return Fails(kLong); }, true),
        Report([&]() -> Status { std::rethrow_exception(exception); }, true),
        Report([]() -> Status { throw std::bad_alloc(); }, true)}) {
    EXPECT_EQ(reported.code, RULLAMA_ERROR_MEMORY);
    EXPECT_EQ(reported.id, "memory.host");
    EXPECT_EQ(reported.text, "the system refused more memory [memory.host]");
  }
}

TEST(ErrorHandle, NobodyHasToTakeTheError) {
  EXPECT_EQ(AtBorder(nullptr, [] { return Fails("closed"); }), RULLAMA_ERROR_IO);
  EXPECT_EQ(AtBorder(nullptr, [] { return OkStatus(); }), RULLAMA_OK);
}

}  // namespace
}  // namespace rullama::c_api
