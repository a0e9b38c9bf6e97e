/* old_host PLUGIN: a host built in C with the headers of ABI 1.0 that uses today's plugin: one step
 * of y = 2 x + 1 with two rows. Exit code 0 if all of it worked. */
#include <dlfcn.h>
#include <rullama/abi/rullama_abi.h>
#include <stdio.h>
#include <string.h>

enum { kRows = 2, kColumns = 4, kBytes = kRows * kColumns * sizeof(float) };
enum { kOffset = 4096 }; /* of y, a multiple of any alignment a device may ask for */

static void log_message(void* context, int32_t level, rl_str message) {
  (void)context;
  fprintf(stderr, "log %d: %.*s\n", level, (int)message.size, message.data);
}
static int32_t cancelled(void* context) {
  (void)context;
  return 0;
}
static uint64_t blob_get(void* context, rl_str key, void* data, uint64_t capacity) {
  (void)context;
  (void)key;
  (void)data;
  (void)capacity;
  return 0;
}
static int32_t blob_put(void* context, rl_str key, const void* data, uint64_t size) {
  (void)context;
  (void)key;
  (void)data;
  (void)size;
  return RL_UNAVAILABLE;
}

static const rl_host_v1 host = {sizeof host, RL_ABI_MAJOR, RL_ABI_MINOR, NULL,
                                log_message, cancelled,    blob_get,     blob_put};

static rl_error error = {.struct_size = sizeof error};

static int failed(const char* what, int32_t code) {
  if (code == RL_OK) return 0;
  fprintf(stderr, "%s failed with code %d: %s\n", what, code, error.message);
  return 1;
}

static rl_value value_of(const char* name, rl_lifetime lifetime, rl_buffer* buffer,
                         uint64_t offset) {
  rl_value value = {.dtype = RL_DTYPE_F32, .rank = 2, .lifetime = lifetime, .buffer = buffer};
  value.dims[0].t = 1;
  value.dims[1].constant = kColumns;
  value.name.data = name;
  value.name.size = strlen(name);
  value.offset = offset;
  value.bytes = kBytes;
  return value;
}

static int run(const rl_plugin_v1* plugin, rl_device* device) {
  rl_buffer* buffer = NULL;
  if (failed("buffer_create",
             plugin->buffer_create(device, kOffset + kBytes, RL_BUFFER_IO, &buffer, &error))) {
    return 1;
  }
  const rl_value values[] = {value_of("x", RL_LIFETIME_INPUT, buffer, 0),
                             value_of("y", RL_LIFETIME_OUTPUT, buffer, kOffset)};
  const uint32_t inputs[] = {0}, results[] = {1};
  const rl_affine_attrs attrs = {sizeof attrs, 2.0F, 1.0F};
  const rl_op op = {RL_OP_affine, 1, inputs, 1, sizeof attrs, results, &attrs};
  const rl_graph graph = {.struct_size = sizeof graph,
                          .value_size = sizeof(rl_value),
                          .op_size = sizeof(rl_op),
                          .value_count = 2,
                          .op_count = 1,
                          .values = values,
                          .ops = &op,
                          .max_t = kRows,
                          .max_r = 1,
                          .name = {"old", 3}};
  rl_op_support support = {0};
  if (failed("query_ops", plugin->query_ops(device, &graph, &support, &error))) return 1;
  if (!support.supported) {
    fprintf(stderr, "affine is refused: %s\n", support.reason);
    return 1;
  }
  rl_plan* plan = NULL;
  if (failed("plan_compile", plugin->plan_compile(device, &graph, &plan, &error))) return 1;
  const float x[kRows * kColumns] = {0, 1, -2, 3, 0.5F, 100, -0.25F, 8};
  float y[kRows * kColumns] = {0};
  const rl_step step = {sizeof step, 0, kRows, 1};
  rl_plan_stats stats = {.struct_size = sizeof stats};
  if (failed("buffer_write", plugin->buffer_write(device, buffer, 0, x, sizeof x, &error)) ||
      failed("plan_execute", plugin->plan_execute(plan, &step, &error)) ||
      failed("device_wait", plugin->device_wait(device, &error)) ||
      failed("buffer_read", plugin->buffer_read(device, buffer, kOffset, y, sizeof y, &error)) ||
      failed("plan_stats", plugin->plan_stats(plan, &stats, &error))) {
    return 1;
  }
  for (int i = 0; i < kRows * kColumns; ++i) {
    if (y[i] != 2 * x[i] + 1) {
      fprintf(stderr, "y[%d] is %g, expected %g\n", i, (double)y[i], (double)(2 * x[i] + 1));
      return 1;
    }
  }
  plugin->plan_free(device, plan);
  plugin->buffer_free(device, buffer);
  if (stats.executions == 1) return 0;
  fprintf(stderr, "expected 1 execution\n");
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: old_host PLUGIN\n");
    return 2;
  }
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  rl_plugin_query_fn query = NULL;
  void* symbol = dlsym(library, RL_PLUGIN_QUERY_NAME);
  memcpy(&query, &symbol, sizeof query); /* ISO C has no cast from void* to a function */
  if (query == NULL) {
    fprintf(stderr, "there is no " RL_PLUGIN_QUERY_NAME "\n");
    return 1;
  }
  const rl_plugin_v1* plugin = NULL;
  rl_device* device = NULL;
  if (failed("query", query(&host, &plugin, &error)) ||
      failed("device_open", plugin->device_open(plugin->context, 0, NULL, 0, &device, &error))) {
    return 1;
  }
  const int result = run(plugin, device);
  plugin->device_close(device);
  plugin->shutdown(plugin->context);
  return result;
}
