// The function of JavaScript that module.cc calls, for the linker of Emscripten: hands an answer to the worker.
addToLibrary({
  rullama_answer__proxy: "async",
  rullama_answer__sig: "vip",
  rullama_answer__deps: ["$UTF8ToString", "free"],
  rullama_answer: (id, text) => {
    const answer = text ? UTF8ToString(text) : null;
    _free(text);
    Module["onAnswer"](id, answer);
  },
});
