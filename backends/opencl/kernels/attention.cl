// Attention: on a CPU, and on devices of many work-items.
#ifdef CPU
#define WITHOUT_LOCAL_MEMORY
#endif
#include "common.cl"
#include "attention.args"
#include "cache_rows.kernel"
#include "math.kernel"
#include "visible.kernel"

#ifdef CPU
#include "attention_cpu.cl"
#else
#include "attention.kernel"
#endif
