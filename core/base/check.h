// RL_CHECK guards against our own bugs only. Input from users, files, drivers and plugins is
// answered with an Error (status.h), never with a check.
#pragma once

#include <cstdio>
#include <cstdlib>

#define RL_CHECK(condition)                                                            \
  do {                                                                                 \
    if (!(condition)) [[unlikely]] {                                                   \
      std::fprintf(stderr, "rullama: internal error: %s:%d: %s\n", __FILE__, __LINE__, \
                   #condition);                                                        \
      std::abort();                                                                    \
    }                                                                                  \
  } while (false)
