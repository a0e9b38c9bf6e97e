// The message of a worker that dies to its parent: which function of the plugin it was in, and why.
// One line of plain text in the pipe of its events (worker.h), which begins with kLastWords.
//
// Process-wide. Handlers that a sanitizer has installed stay. Call it once, in the worker, before
// the plugin is loaded.
#pragma once

namespace rullama::conformance {

inline constexpr char kLastWords = '!';

void SendLastWordsTo(int file);
// Takes back the signals of crashes, to be called when drivers have been loaded: LLVM, which is in
// several, and PoCL have handlers of their own. `rullama` does the same.
void TakeCrashSignalsBack();

}  // namespace rullama::conformance
