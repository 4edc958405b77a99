#pragma once
// A broken invariant ends the process: going on would mean deciding on state that is known to be
// wrong. Never used on what came from outside; that is parsed and refused.

#include <cstdio>
#include <cstdlib>

#define SANDBOX_CHECK(condition)                                                             \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
