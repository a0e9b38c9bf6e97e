// chat MODEL MESSAGE: prints the model's answer to one message as it is written.
#include <rullama/engine/engine.h>

#include <iostream>

namespace {

int Fail(const rullama::Error& error) {
  std::cerr << "chat: " << error.ToString() << "\n";
  return static_cast<int>(error.kind);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: chat MODEL MESSAGE\n";
    return 2;
  }
  const auto engine = rullama::Engine::Open({.model = argv[1], .backend = "cpu"});
  if (!engine) return Fail(engine.error());
  rullama::Request request{.turns = {{.role = "user", .text = argv[2]}}, .max_tokens = 32};
  request.sampling.seed = 7;
  auto answer = (*engine)->Submit(request);
  if (!answer) return Fail(answer.error());
  for (;;) {
    const auto event = answer->Next();
    if (!event) return Fail(event.error());
    if (!*event) break;
    if ((*event)->kind == rullama::Event::Kind::kText) std::cout << (*event)->text << std::flush;
  }
  std::cout << "\n";
  return 0;
}
