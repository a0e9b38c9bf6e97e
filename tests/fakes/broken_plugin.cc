// Libraries that are not plugins: without BROKEN_UNRESOLVED there is no entry point; with it the
// entry point needs a symbol nobody has.
#include <rullama/abi/rullama_abi.h>

#ifdef BROKEN_UNRESOLVED
extern "C" int32_t rullama_symbol_that_nobody_defines();

extern "C" __attribute__((visibility("default"))) int32_t rullama_plugin_query_v1(
    const rl_host_v1*, const rl_plugin_v1**, rl_error*) {
  return rullama_symbol_that_nobody_defines();
}
#else
extern "C" __attribute__((visibility("default"))) int32_t some_other_function() { return 0; }
#endif
