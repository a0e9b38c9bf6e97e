/* The contract between rullama and its backend plugins, version 1. C11, also valid C++20.
 *
 * A plugin is a shared object that exports exactly one symbol, rullama_plugin_query_v1, and
 * resolves no symbol of the host. Everything else goes through two tables of function pointers: the
 * host's, handed in, and the plugin's, handed out.
 *
 * Rules that hold for every struct and function below
 *
 *  Growth      A table or struct that begins with `struct_size` only ever grows at its end. The
 * reader uses min(struct_size, its own size) bytes and treats what is missing as zero; a
 *              struct_size below the size of version 1.0 is refused. Arrays of structs carry their
 *              element size, so that elements can grow too.
 *  Strings     rl_str: pointer and length, UTF-8, not terminated.
 *  Lifetime    Whatever a function receives by pointer is valid until it returns; copy what you
 * keep. Exceptions are named (rl_weight_desc.data, rl_host_v1 itself). Strings the plugin hands out
 * live as long as the object they describe. Ownership   Who creates, frees: objects of the plugin
 * are destroyed through its own table. Errors      A function returns an rl_code and, unless it is
 * RL_OK, fills the caller's rl_error. A plugin never throws across the boundary, aborts, exits,
 * installs signal handlers or writes to stdout. After RL_DEVICE_LOST each call on that device
 * returns the same. Threads     [any]     may be called from any thread, concurrently. [device] the
 * host serialises all such calls on one device (and its objects). Callbacks of the host may be used
 * from any thread, also from the plugin's own threads, which it has to join in device_close. Replay
 * The second and later executions of a plan compile nothing, allocate nothing and record nothing.
 * rl_plan_stats reports the counters that show it.
 */
#ifndef RULLAMA_ABI_RULLAMA_ABI_H_
#define RULLAMA_ABI_RULLAMA_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The major number is also in the name of the entry point: an incompatible change makes a second
 * one. The minor number counts additions at the end of structs. */
#define RL_ABI_MAJOR 1
#define RL_ABI_MINOR 8

typedef struct rl_str {
  const char* data;
  uint64_t size;
} rl_str;

/* ---- errors ------------------------------------------------------------------------------------
 */

typedef enum rl_code {
  RL_OK = 0,
  RL_INVALID_ARGUMENT = 1, /* the host broke this contract, or an option has a bad value */
  RL_UNSUPPORTED = 2,      /* understood, but this device or plugin cannot */
  RL_OUT_OF_MEMORY = 3,    /* host or device memory */
  RL_DEVICE_LOST = 4,      /* the device has to be closed */
  RL_CANCELLED = 5,        /* rl_host_v1.cancelled said so */
  RL_UNAVAILABLE = 6,      /* no driver, no such device, busy */
  RL_INTERNAL = 7          /* a bug in the plugin */
} rl_code;

#define RL_NO_OP UINT32_MAX
#define RL_ERROR_TEXT 480

/* Owned by the caller; the plugin fills it. Nothing to free, works when memory is short. */
typedef struct rl_error {
  uint32_t struct_size;
  int32_t code;                /* rl_code */
  uint32_t op_index;           /* index into rl_graph.ops, or RL_NO_OP */
  int32_t device_code;         /* the driver's own code, or 0 */
  char message[RL_ERROR_TEXT]; /* UTF-8, terminated; what was found, expected, what to do */
} rl_error;

/* ---- types and ops -----------------------------------------------------------------------------
 */

/* Element types: ids, names and block sizes are in dtypes.def. */
typedef enum rl_dtype {
#define RL_DTYPE(id, NAME, text, elements, bytes) RL_DTYPE_##NAME = id,
#include <rullama/abi/dtypes.def>
  RL_DTYPE_MAX_ENUM = 0x7FFFFFFF
} rl_dtype;

typedef enum rl_unary {
  RL_UNARY_NEG = 0,
  RL_UNARY_ABS = 1,
  RL_UNARY_EXP = 2,
  RL_UNARY_LOG = 3,
  RL_UNARY_SQRT = 4,
  RL_UNARY_RSQRT = 5,
  RL_UNARY_TANH = 6,
  RL_UNARY_SIGMOID = 7,
  RL_UNARY_GELU_TANH = 8, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
  RL_UNARY_SILU = 9,
  RL_UNARY_SQUARE = 10,
  RL_UNARY_GELU_TANH_GRAD = 11 /* since 1.3: the derivative of gelu_tanh at x */
} rl_unary;

typedef enum rl_binary {
  RL_BINARY_ADD = 0,
  RL_BINARY_SUB = 1,
  RL_BINARY_MUL = 2,
  RL_BINARY_DIV = 3,
  RL_BINARY_MIN = 4,
  RL_BINARY_MAX = 5,
  RL_BINARY_LT = 6,
  RL_BINARY_LE = 7,
  RL_BINARY_EQ = 8
} rl_binary;

typedef enum rl_reduce { RL_REDUCE_SUM = 0, RL_REDUCE_MAX = 1, RL_REDUCE_MEAN = 2 } rl_reduce;

typedef enum rl_mask { RL_MASK_CAUSAL = 0, RL_MASK_CANVAS = 1 } rl_mask;

/* RL_OP_RMS_NORM and so on are spelled RL_OP_rms_norm, as in ops.def and the text form. */
typedef enum rl_op_kind {
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) RL_OP_##name = id,
#include <rullama/abi/ops.def>
  RL_OP_MAX_ENUM = 0x7FFFFFFF
} rl_op_kind;

/* One attribute struct for each op: rl_rms_norm_attrs { struct_size; eps }. Enumerations are int32.
 */
#define RL_I32(name) int32_t name;
#define RL_I64(name) int64_t name;
#define RL_F32(name) float name;
#define RL_ENUM(type, name) int32_t name;
#define RL_NONE
#define RL_OP(id, Name, name, operands, results, attributes, traits, doc) \
  typedef struct rl_##name##_attrs {                                      \
    uint32_t struct_size;                                                 \
    attributes                                                            \
  } rl_##name##_attrs;
#include <rullama/abi/ops.def>

/* ---- graphs ------------------------------------------------------------------------------------
 */

typedef struct rl_buffer rl_buffer; /* device memory; created and freed by the plugin */
typedef struct rl_weight rl_weight; /* a constant in whatever layout the plugin chose */
typedef struct rl_plan rl_plan;
typedef struct rl_device rl_device;

#define RL_MAX_RANK 4
#define RL_NO_VALUE UINT32_MAX

/* A dimension: constant + t * T + r * R, with T the rows of a step and R the rows wanted of it. */
typedef struct rl_dim {
  int64_t constant;
  int32_t t;
  int32_t r;
} rl_dim;

typedef enum rl_lifetime {
  RL_LIFETIME_INPUT = 0,     /* written by the host before a step */
  RL_LIFETIME_CONSTANT = 1,  /* a weight */
  RL_LIFETIME_STATE = 2,     /* persists from step to step; canonical row-major layout */
  RL_LIFETIME_TRANSIENT = 3, /* lives within a step, in the arena */
  RL_LIFETIME_OUTPUT = 4     /* read by the host after a step */
} rl_lifetime;

/* A tensor in numpy order: the last dimension is contiguous, no padding between rows. Block types
 * run along the last dimension. */
typedef struct rl_value {
  uint32_t dtype; /* rl_dtype */
  uint32_t rank;  /* 1 to 4 */
  rl_dim dims[RL_MAX_RANK];
  uint32_t lifetime; /* rl_lifetime */
  uint32_t observed; /* 1: the host reads it for inspection; it must hold its exact op result */
  rl_str name;       /* stable debug name: "blk.12.attn.q" */
  /* Where it lives. Constants: `weight` is set in plan_compile, null in query_ops. Others: a range
   * of a buffer, set in plan_compile, null in query_ops. `bytes` is at the largest T and R. All
   * versions of a state share one range. Transients whose lives do not overlap may share bytes. */
  rl_weight* weight;
  rl_buffer* buffer;
  uint64_t offset;
  uint64_t bytes;
} rl_value;

typedef struct rl_op {
  uint32_t kind; /* rl_op_kind */
  uint32_t input_count;
  const uint32_t* inputs; /* value indices; RL_NO_VALUE for an absent optional operand */
  uint32_t result_count;
  uint32_t attrs_size;
  const uint32_t* results;
  const void* attrs; /* rl_<op>_attrs; begins with its struct_size */
} rl_op;

/* Ops are in an order in which they may run one after another. */
typedef struct rl_graph {
  uint32_t struct_size;
  uint32_t value_size; /* bytes between two elements of `values` */
  uint32_t op_size;    /* bytes between two elements of `ops` */
  uint32_t value_count;
  uint32_t op_count;
  uint32_t reserved;
  const rl_value* values;
  const rl_op* ops;
  int64_t max_t; /* T and R of any step lie in [1, max_t] and [0, max_r] */
  int64_t max_r;
  rl_str name; /* "decode", "prefill": for messages and profiles */
  /* Since 1.5. 1 in plan_compile: the plan records when its ops run (plan_times). 0: it reads no
   * clock. */
  uint32_t record_times;
  uint32_t reserved2; /* since 1.5 */
} rl_graph;

/* ---- what the host offers ----------------------------------------------------------------------
 */

typedef enum rl_log_level {
  RL_LOG_DEBUG = 0,
  RL_LOG_INFO = 1,
  RL_LOG_WARNING = 2,
  RL_LOG_ERROR = 3
} rl_log_level;

/* Valid for the life of the process. All functions [any] and never null. */
typedef struct rl_host_v1 {
  uint32_t struct_size;
  uint16_t abi_major;
  uint16_t abi_minor;
  void* context; /* pass back as the first argument */
  void (*log)(void* context, int32_t level, rl_str message);
  /* Whether the user asked to stop. Long work polls it and returns RL_CANCELLED. */
  int32_t (*cancelled)(void* context);
  /* A cache on disk for pipelines and programs. The key names plugin, version, device and driver.
   * blob_get copies up to `capacity` bytes and returns the full size, 0 if there is none. */
  uint64_t (*blob_get)(void* context, rl_str key, void* data, uint64_t capacity);
  int32_t (*blob_put)(void* context, rl_str key, const void* data, uint64_t size);
} rl_host_v1;

/* ---- what the plugin offers --------------------------------------------------------------------
 */

typedef enum rl_device_type {
  RL_DEVICE_CPU = 0,
  RL_DEVICE_GPU = 1,
  RL_DEVICE_INTEGRATED_GPU = 2,
  RL_DEVICE_SOFTWARE = 3, /* a software rasteriser or emulator: never chosen silently */
  RL_DEVICE_OTHER = 4
} rl_device_type;

typedef struct rl_device_info {
  uint32_t struct_size;
  int32_t type; /* rl_device_type */
  rl_str name;
  rl_str driver;             /* name and version */
  uint64_t memory_total;     /* bytes; 0 if unknown */
  uint64_t memory_free;      /* bytes; 0 if unknown */
  uint64_t max_buffer_bytes; /* of one allocation */
  uint32_t alignment;        /* of value offsets inside a buffer, a power of two */
  uint32_t deterministic;    /* 1: same inputs give the same bytes, whatever else runs */
} rl_device_info;

/* key = value pairs from the `backend.options` block of the configuration. */
typedef struct rl_option {
  rl_str key;
  rl_str value;
} rl_option;

/* Since 1.7. An option that device_open takes, in words for people. */
typedef struct rl_option_info {
  rl_str name;    /* rl_option.key */
  rl_str values;  /* what it takes: "on, off" */
  rl_str initial; /* what holds unless it is given */
  rl_str meaning;
} rl_option_info;

/* Since 1.7. Receives `count` records, `option_size` bytes apart, in parts. [any]: may be called
 * until the function it was passed to returns. */
typedef void (*rl_option_sink)(void* sink, const rl_option_info* options, uint64_t option_size,
                               uint64_t count);

typedef struct rl_op_support {
  int32_t supported; /* 1 or 0 */
  char reason[124];  /* why not; terminated */
} rl_op_support;

/* The uses of a weight in the graphs of a session, as bits. */
typedef enum rl_weight_uses {
  /* Its rows are multiplied with activations: by matmul with transpose_weight, grouped_matmul,
   * geglu_linear, ple_inject or moe_ffn. Worth a layout made for that. */
  RL_WEIGHT_IN_PRODUCTS = 1
} rl_weight_uses;

typedef struct rl_weight_desc {
  uint32_t struct_size;
  uint32_t dtype;
  uint32_t rank;
  uint32_t reserved;
  int64_t dims[RL_MAX_RANK];
  rl_str name;
  /* The bytes as in the file. They stay valid and unchanged until weight_free, so a plugin may read
   * them in place instead of copying. Null in weight_layout. */
  const void* data;
  uint64_t bytes;
  uint32_t uses;      /* since 1.1: rl_weight_uses; 0 where nothing is known */
  uint32_t reserved2; /* since 1.1 */
} rl_weight_desc;

typedef struct rl_weight_layout {
  uint32_t struct_size;
  uint32_t in_place; /* 1: the plugin will read rl_weight_desc.data in place */
  uint64_t bytes;    /* device memory the plugin will allocate, 0 if in place */
} rl_weight_layout;

typedef enum rl_buffer_usage {
  RL_BUFFER_IO = 0,    /* inputs and outputs: written or read by the host each step */
  RL_BUFFER_STATE = 1, /* zeroed at creation */
  RL_BUFFER_ARENA = 2  /* transients */
} rl_buffer_usage;

typedef struct rl_step {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t t; /* rows of this step, 1 to max_t */
  int64_t r; /* rows wanted, 0 to max_r */
} rl_step;

/* Totals since the plan was compiled. */
typedef struct rl_plan_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t executions;
  uint64_t compilations;    /* kernels, pipelines or programs built */
  uint64_t allocations;     /* host or device memory obtained */
  uint64_t recordings;      /* command buffers recorded */
  uint64_t dispatches;      /* kernels or phases started */
  uint64_t workspace_bytes; /* memory the plan holds in addition to the arena */
  /* Since 1.8. What is compiled at the moment, while steps run without it: later ones will take
   * less time, with the same results. */
  uint64_t pending;
} rl_plan_stats;

/* Since 1.5. An interval in which one worker of a device ran ops of a plan, alone or as one of
 * several workers that share them. */
typedef struct rl_op_time {
  const uint32_t* ops; /* indices into rl_graph.ops, ascending; several if they ran as one */
  uint32_t op_count;   /* 1 or more */
  uint32_t worker; /* what runs one thing at a time: a thread of a CPU, a queue of a GPU; from 0 */
  uint64_t begin;  /* nanoseconds of CLOCK_MONOTONIC */
  uint64_t end;    /* not before `begin` */
} rl_op_time;

/* Since 1.5. Receives `count` records, `time_size` bytes apart, in parts. [any]: may be called
 * until the function it was passed to returns. */
typedef void (*rl_time_sink)(void* sink, const rl_op_time* times, uint64_t time_size,
                             uint64_t count);

/* Receives text for people, in parts. [any]: may be called until the function it was passed to
 * returns. */
typedef void (*rl_text_sink)(void* sink, rl_str text);

/* The plugin's table. Every function has to be present, except those added since 1.0. */
typedef struct rl_plugin_v1 {
  uint32_t struct_size;
  uint16_t abi_major; /* RL_ABI_MAJOR, RL_ABI_MINOR the plugin was built with; 0 is refused */
  uint16_t abi_minor;
  rl_str name; /* short and lower case, what --backend takes: "cpu" */
  rl_str version;
  rl_str vendor;
  rl_str build;  /* compiler, standard library, options worth knowing */
  void* context; /* pass back as the first argument of the functions without a device */

  /* [any] How many devices there are. Zero is a normal answer: *reason then says why (no driver, no
   * device, missing feature) and lives until shutdown. Must not crash where no driver is installed.
   */
  uint32_t (*device_count)(void* context, rl_str* reason);
  /* [any] Describes device `index`. Strings live until shutdown. */
  int32_t (*device_info)(void* context, uint32_t index, rl_device_info* info, rl_error* error);
  /* [any] Opens a device. An unknown option is RL_INVALID_ARGUMENT and the message lists the known.
   */
  int32_t (*device_open)(void* context, uint32_t index, const rl_option* options,
                         uint32_t option_count, rl_device** device, rl_error* error);
  /* [device] Frees the device; its plans, weights and buffers have been freed before. Joins
   * threads. */
  void (*device_close)(rl_device* device);

  /* [device] Fills support[i] for ops[i], once for each graph, before storage is known. A yes is a
   * promise for every T and R up to the maxima of the graph. */
  int32_t (*query_ops)(rl_device* device, const rl_graph* graph, rl_op_support* support,
                       rl_error* error);

  /* [device] What a weight would cost, without creating it: for estimates before loading. */
  int32_t (*weight_layout)(rl_device* device, const rl_weight_desc* desc, rl_weight_layout* layout,
                           rl_error* error);
  /* [device] Takes a weight: uploads, repacks, or keeps desc->data. */
  int32_t (*weight_create)(rl_device* device, const rl_weight_desc* desc, rl_weight** weight,
                           rl_error* error);
  void (*weight_free)(rl_device* device, rl_weight* weight); /* [device] */

  /* [device] Memory. bytes > 0. */
  int32_t (*buffer_create)(rl_device* device, uint64_t bytes, int32_t usage, rl_buffer** buffer,
                           rl_error* error);
  void (*buffer_free)(rl_device* device, rl_buffer* buffer);
  /* [device] Copies between host and device, after all work enqueued before; done on return. */
  int32_t (*buffer_write)(rl_device* device, rl_buffer* buffer, uint64_t offset, const void* data,
                          uint64_t size, rl_error* error);
  int32_t (*buffer_read)(rl_device* device, rl_buffer* buffer, uint64_t offset, void* data,
                         uint64_t size, rl_error* error);

  /* [device] Compiles a graph whose values all have storage. The plan keeps using those buffers and
   * weights until plan_free; T and R are the only things that change from step to step. */
  int32_t (*plan_compile)(rl_device* device, const rl_graph* graph, rl_plan** plan,
                          rl_error* error);
  /* [device] Runs one step, in order after what was enqueued before; may return before it is done.
   */
  int32_t (*plan_execute)(rl_plan* plan, const rl_step* step, rl_error* error);
  int32_t (*plan_stats)(rl_plan* plan, rl_plan_stats* stats, rl_error* error); /* [device] */
  void (*plan_free)(rl_device* device, rl_plan* plan);                         /* [device] */
  /* [device] Waits for everything enqueued; reports failures of asynchronous work. */
  int32_t (*device_wait)(rl_device* device, rl_error* error);

  /* [any] Called after every device was closed, by the last user of the plugin in the process. The
   * plugin may be queried again afterwards, and starts anew then. */
  void (*shutdown)(void* context);

  /* [device] Since 1.2, may be null: says how the backend runs a graph whose values have no
   * storage, for example which ops it fuses, one per line. Writes nothing if it runs op by op. */
  int32_t (*graph_describe)(rl_device* device, const rl_graph* graph, void* sink,
                            rl_text_sink write, rl_error* error);

  /* [device] Since 1.5, may be null: passes on when the ops of the last execution ran, if that
   * succeeded and the graph had record_times; otherwise nothing. The host has called device_wait
   * since. The intervals lie between the call of plan_execute and the return of device_wait; a
   * device with a clock of its own moves its times there. Those of one worker are in order and do
   * not overlap. An op has as many records as it has parts; it may have none if it had nothing to
   * do. Recording may order the work of a device more strictly; results stay the same bytes. */
  int32_t (*plan_times)(rl_plan* plan, void* sink, rl_time_sink write, rl_error* error);

  /* [any] Since 1.7, may be null: passes on every option that device_open takes on some device,
   * each once. Strings live until shutdown. */
  int32_t (*options_describe)(void* context, void* sink, rl_option_sink write, rl_error* error);
} rl_plugin_v1;

/* The one exported symbol. `host` lives as long as the process. The plugin points *plugin at its
 * table, which lives until shutdown. It refuses a host whose major number it does not know. */
#define RL_PLUGIN_QUERY_NAME "rullama_plugin_query_v1"
typedef int32_t (*rl_plugin_query_fn)(const rl_host_v1* host, const rl_plugin_v1** plugin,
                                      rl_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RULLAMA_ABI_RULLAMA_ABI_H_ */
