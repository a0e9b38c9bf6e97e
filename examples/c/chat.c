/* chat MODEL MESSAGE: prints the model's answer to one message as it is written. */
#include <rullama/rullama.h>
#include <stdio.h>

/* Says what went wrong; returns the exit code for it. */
static int Fail(rullama_error* error) {
  const int code = rullama_error_code(error);
  fprintf(stderr, "chat: %s\n", rullama_error_text(error));
  rullama_error_free(error);
  return code;
}

/* Prints the answer; returns 0 or the exit code. */
static int Print(rullama_generation* generation) {
  rullama_error* error = NULL;
  const rullama_event* event = NULL;
  for (;;) {
    if (rullama_generation_next(generation, &event, &error) != RULLAMA_OK) return Fail(error);
    if (event == NULL) break;
    if (event->kind == RULLAMA_EVENT_TEXT) {
      fwrite(event->text, 1, event->text_size, stdout);
      fflush(stdout);
    }
  }
  printf("\n");
  return 0;
}

static int Answer(rullama_engine* engine, const char* message) {
  const rullama_turn turn = {.role = "user", .text = message};
  rullama_request request = {.struct_size = sizeof(request)};
  request.turns = &turn;
  request.turn_count = 1;
  request.max_tokens = rullama_given_int(32);
  request.seed = rullama_given_int(7);
  rullama_generation* generation = NULL;
  rullama_error* error = NULL;
  if (rullama_engine_submit(engine, &request, &generation, &error)) return Fail(error);
  const int code = Print(generation);
  rullama_generation_free(generation);
  return code;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: chat MODEL MESSAGE\n");
    return 2;
  }
  rullama_engine_options options = {.struct_size = sizeof(options)};
  options.model = argv[1];
  options.backend = "cpu";
  rullama_engine* engine = NULL;
  rullama_error* error = NULL;
  if (rullama_engine_open(&options, &engine, &error) != RULLAMA_OK) return Fail(error);
  const int code = Answer(engine, argv[2]);
  rullama_engine_free(engine);
  return code;
}
