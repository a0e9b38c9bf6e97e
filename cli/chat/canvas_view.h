// A canvas on the terminal while it is denoised: the likeliest text, undecided tokens dimmed, drawn
// again in place after each step and removed before the finished text is written.
//
// Thread safety: one thread per object.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal/console.h"
#include "core/tokenizer/tokenizer.h"
#include "engine/api/request.h"

namespace rullama::cli {

// A piece of text with one look.
struct CanvasPiece {
  std::string text;  // UTF-8
  bool decided = false;
};
// The lines of a canvas, each at most `size.columns` - 1 wide, the first one after `column` columns
// that are taken; only the last ones if there are more than fit on the screen. Undecided pieces are
// dim (SGR 2).
std::vector<std::string> LayOutCanvas(std::span<const CanvasPiece> pieces, int column,
                                      const TerminalSize& size);

class CanvasView {
 public:
  // Both outlive this object.
  CanvasView(const Tokenizer& tokenizer, Console& console);

  // The terminal's cursor is at the start of a line: a new answer begins.
  void StartLine() { column_ = 0; }
  // Draws the canvas of a step over that of the last one.
  Status Show(const CanvasDraft& draft);
  // Removes it; then text that stays may be written.
  Status Clear();
  // Text that was written and stays, so that the next canvas begins where it ended.
  void Wrote(std::string_view text);

 private:
  const Tokenizer& tokenizer_;
  Console& console_;
  int column_ = 0;  // where text that stays has ended
  size_t shown_lines_ = 0;
};

}  // namespace rullama::cli
