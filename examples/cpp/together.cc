// together MODEL PROMPT...: continues several prompts at once and prints what was written for each.
#include <rullama/engine/engine.h>

#include <iostream>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: together MODEL PROMPT...\n";
    return 2;
  }
  const auto engine = rullama::Engine::Open(
      {.model = argv[1], .backend = "cpu", .settings = {{"context.slots", "4"}}});
  if (!engine) {
    std::cerr << engine.error().ToString() << "\n";
    return static_cast<int>(engine.error().kind);
  }
  std::vector<rullama::Generation> running;
  for (int i = 2; i < argc; ++i) {
    rullama::Request request{.prompt = argv[i], .max_tokens = 16};
    request.sampling.temperature = 0;
    auto generation = (*engine)->Submit(request);
    if (!generation) {
      std::cerr << generation.error().ToString() << "\n";
      return static_cast<int>(generation.error().kind);
    }
    running.push_back(*std::move(generation));
  }
  for (rullama::Generation& generation : running) {
    const auto completion = generation.Wait();
    if (!completion) {
      std::cerr << completion.error().ToString() << "\n";
      return static_cast<int>(completion.error().kind);
    }
    std::cout << completion->text << "\n";
  }
  return 0;
}
