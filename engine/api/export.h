// RULLAMA_API marks what librullama exports, RULLAMA_LOCAL what a class that is exported hides.
#pragma once

#if __cplusplus < 202002L
#error "rullama needs C++20: compile with -std=c++20 or later"
#endif

#if defined(__GNUC__)
#define RULLAMA_API __attribute__((visibility("default")))
#define RULLAMA_LOCAL __attribute__((visibility("hidden")))
#else
#define RULLAMA_API
#define RULLAMA_LOCAL
#endif
