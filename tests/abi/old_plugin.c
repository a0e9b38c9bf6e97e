/* A plugin built in C with the headers of ABI 1.0: one device in host memory that runs `affine` on
 * f32, and says that it runs `unary` and `rope` without looking at their attributes. Today's host
 * has to load it, take its refusals and get its results, and ask it for nothing that it cannot
 * know. */
#include <rullama/abi/rullama_abi.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(literal) \
  { literal, sizeof(literal) - 1 }

struct rl_device {
  int unused;
};
struct rl_buffer {
  uint64_t size;
  unsigned char* bytes;
};
struct rl_weight {
  const void* data;
};
struct rl_plan {
  uint64_t executions;
  const float* x;
  float* y;
  rl_dim rows;
  int64_t columns;
  float scale, bias;
};

static int32_t fail(rl_error* error, rl_code code, const char* message) {
  error->code = code;
  error->op_index = RL_NO_OP;
  error->device_code = 0;
  strncpy(error->message, message, RL_ERROR_TEXT - 1);
  error->message[RL_ERROR_TEXT - 1] = 0;
  return code;
}

static uint32_t device_count(void* context, rl_str* reason) {
  (void)context;
  (void)reason;
  return 1;
}

static int32_t device_info(void* context, uint32_t index, rl_device_info* info, rl_error* error) {
  (void)context;
  if (index != 0) return fail(error, RL_INVALID_ARGUMENT, "there is one device");
  const rl_device_info device = {.struct_size = sizeof device,
                                 .type = RL_DEVICE_CPU,
                                 .name = TEXT("host memory"),
                                 .driver = TEXT("none"),
                                 .max_buffer_bytes = UINT64_MAX,
                                 .alignment = 16,
                                 .deterministic = 1};
  memcpy(info, &device, info->struct_size < sizeof device ? info->struct_size : sizeof device);
  return RL_OK;
}

static int32_t device_open(void* context, uint32_t index, const rl_option* options,
                           uint32_t option_count, rl_device** device, rl_error* error) {
  (void)context;
  (void)options;
  if (index != 0) return fail(error, RL_INVALID_ARGUMENT, "there is one device");
  if (option_count != 0) return fail(error, RL_INVALID_ARGUMENT, "there are no options");
  *device = calloc(1, sizeof **device);
  return *device != NULL ? RL_OK : fail(error, RL_OUT_OF_MEMORY, "no memory");
}

static void device_close(rl_device* device) { free(device); }

static const rl_op* op_at(const rl_graph* graph, uint32_t i) {
  return (const rl_op*)((const char*)graph->ops + (size_t)graph->op_size * i);
}
static const rl_value* value_at(const rl_graph* graph, uint32_t i) {
  return (const rl_value*)((const char*)graph->values + (size_t)graph->value_size * i);
}

static int32_t query_ops(rl_device* device, const rl_graph* graph, rl_op_support* support,
                         rl_error* error) {
  (void)device;
  (void)error;
  for (uint32_t i = 0; i < graph->op_count; ++i) {
    const rl_op* op = op_at(graph, i);
    support[i].supported =
        (op->kind == RL_OP_affine && value_at(graph, op->inputs[0])->dtype == RL_DTYPE_F32) ||
        op->kind == RL_OP_unary || op->kind == RL_OP_rope;
    if (!support[i].supported) strcpy(support[i].reason, "only affine on f32");
  }
  return RL_OK;
}

static int32_t weight_layout(rl_device* device, const rl_weight_desc* desc,
                             rl_weight_layout* layout, rl_error* error) {
  (void)device;
  (void)desc;
  (void)error;
  layout->in_place = 1;
  layout->bytes = 0;
  return RL_OK;
}

static int32_t weight_create(rl_device* device, const rl_weight_desc* desc, rl_weight** weight,
                             rl_error* error) {
  (void)device;
  *weight = malloc(sizeof **weight);
  if (*weight == NULL) return fail(error, RL_OUT_OF_MEMORY, "no memory");
  (*weight)->data = desc->data;
  return RL_OK;
}

static void weight_free(rl_device* device, rl_weight* weight) {
  (void)device;
  free(weight);
}

static int32_t buffer_create(rl_device* device, uint64_t bytes, int32_t usage, rl_buffer** buffer,
                             rl_error* error) {
  (void)device;
  (void)usage;
  *buffer = malloc(sizeof **buffer);
  if (*buffer == NULL) return fail(error, RL_OUT_OF_MEMORY, "no memory");
  (*buffer)->size = bytes;
  (*buffer)->bytes = calloc(1, bytes);
  if ((*buffer)->bytes != NULL) return RL_OK;
  free(*buffer);
  *buffer = NULL;
  return fail(error, RL_OUT_OF_MEMORY, "no memory");
}

static void buffer_free(rl_device* device, rl_buffer* buffer) {
  (void)device;
  free(buffer->bytes);
  free(buffer);
}

static int outside(const rl_buffer* buffer, uint64_t offset, uint64_t size) {
  return offset > buffer->size || size > buffer->size - offset;
}

static int32_t buffer_write(rl_device* device, rl_buffer* buffer, uint64_t offset, const void* data,
                            uint64_t size, rl_error* error) {
  (void)device;
  if (outside(buffer, offset, size)) return fail(error, RL_INVALID_ARGUMENT, "outside the buffer");
  if (size != 0) memcpy(buffer->bytes + offset, data, size);
  return RL_OK;
}

static int32_t buffer_read(rl_device* device, rl_buffer* buffer, uint64_t offset, void* data,
                           uint64_t size, rl_error* error) {
  (void)device;
  if (outside(buffer, offset, size)) return fail(error, RL_INVALID_ARGUMENT, "outside the buffer");
  if (size != 0) memcpy(data, buffer->bytes + offset, size);
  return RL_OK;
}

static int32_t plan_compile(rl_device* device, const rl_graph* graph, rl_plan** plan,
                            rl_error* error) {
  (void)device;
  if (graph->op_count != 1) return fail(error, RL_UNSUPPORTED, "one op at a time");
  const rl_op* op = op_at(graph, 0);
  const rl_value* x = value_at(graph, op->inputs[0]);
  const rl_value* y = value_at(graph, op->results[0]);
  const rl_affine_attrs* attrs = op->attrs;
  *plan = calloc(1, sizeof **plan);
  if (*plan == NULL) return fail(error, RL_OUT_OF_MEMORY, "no memory");
  (*plan)->x = (const float*)(const void*)(x->buffer->bytes + x->offset);
  (*plan)->y = (float*)(void*)(y->buffer->bytes + y->offset);
  (*plan)->rows = y->dims[0];
  (*plan)->columns = 1;
  for (uint32_t axis = 1; axis < y->rank; ++axis) (*plan)->columns *= y->dims[axis].constant;
  (*plan)->scale = attrs->scale;
  (*plan)->bias = attrs->bias;
  return RL_OK;
}

static int32_t plan_execute(rl_plan* plan, const rl_step* step, rl_error* error) {
  (void)error;
  const int64_t rows = plan->rows.constant + plan->rows.t * step->t + plan->rows.r * step->r;
  for (int64_t i = 0; i < rows * plan->columns; ++i)
    plan->y[i] = plan->x[i] * plan->scale + plan->bias;
  ++plan->executions;
  return RL_OK;
}

static int32_t plan_stats(rl_plan* plan, rl_plan_stats* stats, rl_error* error) {
  (void)error;
  const uint32_t size = stats->struct_size;
  const rl_plan_stats now = {
      .struct_size = size, .executions = plan->executions, .dispatches = plan->executions};
  memcpy(stats, &now, size < sizeof now ? size : sizeof now);
  return RL_OK;
}

static void plan_free(rl_device* device, rl_plan* plan) {
  (void)device;
  free(plan);
}

static int32_t device_wait(rl_device* device, rl_error* error) {
  (void)device;
  (void)error;
  return RL_OK;
}

static void shut_down(void* context) { (void)context; }

static const rl_plugin_v1 table = {.struct_size = sizeof table,
                                   .abi_major = RL_ABI_MAJOR,
                                   .abi_minor = RL_ABI_MINOR,
                                   .name = TEXT("old"),
                                   .version = TEXT("1.0.0"),
                                   .vendor = TEXT("tests"),
                                   .build = TEXT("C"),
                                   .device_count = device_count,
                                   .device_info = device_info,
                                   .device_open = device_open,
                                   .device_close = device_close,
                                   .query_ops = query_ops,
                                   .weight_layout = weight_layout,
                                   .weight_create = weight_create,
                                   .weight_free = weight_free,
                                   .buffer_create = buffer_create,
                                   .buffer_free = buffer_free,
                                   .buffer_write = buffer_write,
                                   .buffer_read = buffer_read,
                                   .plan_compile = plan_compile,
                                   .plan_execute = plan_execute,
                                   .plan_stats = plan_stats,
                                   .plan_free = plan_free,
                                   .device_wait = device_wait,
                                   .shutdown = shut_down};

__attribute__((visibility("default"))) int32_t rullama_plugin_query_v1(const rl_host_v1* host,
                                                                       const rl_plugin_v1** plugin,
                                                                       rl_error* error) {
  if (host->abi_major != RL_ABI_MAJOR) {
    return fail(error, RL_UNSUPPORTED, "this plugin needs a host of ABI 1");
  }
  *plugin = &table;
  return RL_OK;
}
