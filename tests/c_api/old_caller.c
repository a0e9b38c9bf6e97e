/* old_caller MODEL PLUGINS: a program in C99 that was built with the header of version 1.0. It
 * calls each function of today's library; the exit code is 0 if all of them do what they did. */
#include <rullama/rullama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if RULLAMA_C_API_MINOR != 0
#error "this is not the header of version 1.0"
#endif

/* Every function of 1.0, so that one that is missing does not link. */
typedef void (*any_function)(void);
static const any_function kFunctions[] = {
#define RL_LAYOUT_STRUCT(type, size, alignment)
#define RL_LAYOUT_MEMBER(type, member, offset, size)
#define RL_LAYOUT_NUMBER(name, value)
#define RL_LAYOUT_CALLBACK(result, name, parameters)
#define RL_LAYOUT_FUNCTION(result, name, parameters) (any_function) name,
#include "tests/c_api/layout_v1_0.def"
};

#define EXPECT(condition)                                                      \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "old_caller.c:%d: expected %s\n", __LINE__, #condition); \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

/* The call that returned `code` has succeeded. */
static void Must(rullama_code code, rullama_error* error) {
  if (code == RULLAMA_OK && error == NULL) return;
  fprintf(stderr, "old_caller: %s\n", rullama_error_text(error));
  exit(1);
}

static rullama_engine* Open(const char* model, const char* plugins) {
  const rullama_setting settings[] = {{"context.capacity", "256"}, {"backend.device", "0"}};
  const char* const paths[] = {plugins};
  rullama_engine_options options = {.struct_size = sizeof(options)};
  rullama_engine* engine = NULL;
  rullama_error* error = NULL;
  options.model = model;
  options.backend = "cpu";
  options.settings = settings;
  options.setting_count = 2;
  options.plugin_paths = paths;
  options.plugin_path_count = 1;
  Must(rullama_engine_open(&options, &engine, &error), error);
  return engine;
}

static rullama_generation* Submit(rullama_engine* engine) {
  rullama_request request = {.struct_size = sizeof(request)};
  rullama_generation* generation = NULL;
  rullama_error* error = NULL;
  request.prompt = "The prince";
  request.max_tokens = rullama_given_int(12);
  request.temperature = rullama_given_double(0);
  request.top_logprobs = rullama_given_int(1);
  Must(rullama_engine_submit(engine, &request, &generation, &error), error);
  return generation;
}

static int CountEvents(void* data, const rullama_event* event) {
  EXPECT(event->struct_size >= sizeof(rullama_event));
  ++*(int*)data;
  return 0;
}

/* Reads an answer part by part, another at once, and cancels a third. */
static void Generate(rullama_engine* engine) {
  char text[4096] = "";
  int events = 0;
  rullama_error* error = NULL;
  const rullama_event* event = NULL;
  const rullama_completion* completion = NULL;
  rullama_generation* parts = Submit(engine);
  rullama_generation* whole = Submit(engine);
  rullama_generation* cancelled = Submit(engine);
  rullama_generation_cancel(cancelled);
  rullama_generation_free(cancelled);
  for (;;) {
    Must(rullama_generation_next(parts, &event, &error), error);
    if (event == NULL) break;
    if (event->kind == RULLAMA_EVENT_TEXT) strncat(text, event->text, event->text_size);
  }
  Must(rullama_generation_wait(whole, CountEvents, &events, &error), error);
  Must(rullama_generation_completion(whole, &completion, &error), error);
  EXPECT(events > 1);
  EXPECT(completion->struct_size >= sizeof(rullama_completion));
  EXPECT(strcmp(completion->text, text) == 0 && text[0] != '\0');
  EXPECT(completion->reason == RULLAMA_STOP_MAX_TOKENS);
  EXPECT(completion->id_count == 12 && completion->logprob_count == 12);
  EXPECT(completion->logprobs[11].drawn.token == completion->ids[11]);
  EXPECT(completion->logprobs[11].top[0].token == completion->ids[11]);
  rullama_generation_free(parts);
  rullama_generation_free(whole);
}

static int OneStep(void* data, int64_t first, int64_t rows, int64_t vocabulary,
                   const float* logits) {
  *(int64_t*)data = first + rows;
  EXPECT(vocabulary > 0 && logits != NULL);
  return 0;
}

static void Score(rullama_engine* engine) {
  int32_t* ids = NULL;
  size_t count = 0;
  size_t size = 0;
  char* text = NULL;
  float* values = NULL;
  int64_t rows = 0;
  double sum = 0;
  rullama_error* error = NULL;
  Must(rullama_engine_tokenize(engine, "It was in July", RULLAMA_TERMINATED, RULLAMA_ADD_BOS, &ids,
                               &count, &error),
       error);
  Must(rullama_engine_detokenize(engine, ids + 1, count - 1, 0, &text, &size, &error), error);
  EXPECT(strcmp(text, "It was in July") == 0 && size == strlen(text));
  Must(rullama_engine_logits(engine, ids, count, OneStep, &rows, &error), error);
  EXPECT(rows == (int64_t)count);
  Must(rullama_engine_negative_log_likelihood(engine, ids, count, &sum, &error), error);
  EXPECT(sum > 0);
  rullama_free(ids);
  Must(rullama_engine_embed(engine, text, size, &values, &count, &error), error);
  EXPECT((int64_t)count == rullama_engine_info(engine)->width);
  rullama_free(values);
  rullama_free(text);
  Must(rullama_engine_chat_tokens(engine, "[{\"role\": \"user\", \"content\": \"Who?\"}]", NULL, 0,
                                  &ids, &count, &error),
       error);
  EXPECT(count > 3);
  rullama_free(ids);
}

/* Errors are those of 1.0 too. */
static void Fail(rullama_engine* engine) {
  const rullama_request nothing = {.struct_size = sizeof(nothing)};
  rullama_generation* generation = NULL;
  rullama_error* error = NULL;
  EXPECT(rullama_engine_submit(engine, &nothing, &generation, &error) == RULLAMA_ERROR_USAGE);
  EXPECT(generation == NULL);
  EXPECT(rullama_error_code(error) == RULLAMA_ERROR_USAGE);
  EXPECT(strcmp(rullama_error_id(error), "usage.request") == 0);
  EXPECT(rullama_error_message(error)[0] != '\0' && rullama_error_hint(error) != NULL);
  rullama_error_free(error);
}

int main(int argc, char** argv) {
  rullama_engine* engine = NULL;
  if (argc != 3) return 2;
  EXPECT(sizeof(kFunctions) / sizeof(kFunctions[0]) == 26);
  EXPECT(rullama_c_api_version() >> 16 == RULLAMA_C_API_MAJOR);
  EXPECT(rullama_version()[0] != '\0');
  engine = Open(argv[1], argv[2]);
  EXPECT(rullama_engine_info(engine)->struct_size >= sizeof(rullama_model_info));
  Generate(engine);
  Score(engine);
  Fail(engine);
  rullama_engine_free(engine);
  return 0;
}
