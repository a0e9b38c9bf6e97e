#include "core/drawing/style.h"

namespace rullama::drawing {

std::string_view PictureStyle() {
  return R"css(:root{color-scheme:light dark;--paper:#fff;--panel:#f6f8fa;--ink:#1b1f24;--dim:#57606a;--line:#d0d7de;
--alarm:#c4320a;--good:#1a7f37;--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#0e7a8a;--c5:#bf3989;
--h0:#fff7d6;--h1:#feeaa6;--h2:#fdd774;--h3:#fcbf4f;--h4:#f99f38;--h5:#ee7a2b;--h6:#d95525;--h7:#b4331f;--h8:#7d1a16}
@media (prefers-color-scheme:dark){:root{--paper:#0d1117;--panel:#161b22;--ink:#e6edf3;--dim:#9aa4af;--line:#30363d;
--alarm:#ff7b72;--good:#56d364;--c0:#58a6ff;--c1:#ffa657;--c2:#56d364;--c3:#d2a8ff;--c4:#56d4dd;--c5:#ff9bce;
--h0:#1c1b22;--h1:#35202c;--h2:#572635;--h3:#7d2d38;--h4:#a53d33;--h5:#cb562b;--h6:#e77b2c;--h7:#f6a945;--h8:#ffe08a}}
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
svg .dim{fill:var(--dim)}svg .mono{font-family:ui-monospace,monospace}svg .middle{text-anchor:middle}svg .end{text-anchor:end}
svg .paper{fill:var(--paper)}svg .grid{stroke:var(--line);stroke-width:1;fill:none}
svg .axis{stroke:var(--dim);stroke-width:1;fill:none}
svg .limit{stroke:var(--alarm);stroke-width:1.5;stroke-dasharray:6 4;fill:none}svg .limit-text{fill:var(--alarm);paint-order:stroke;stroke:var(--paper);stroke-width:4px}
svg .curve{fill:none;stroke:var(--s);stroke-width:2;stroke-linejoin:round}svg .dot{fill:var(--s);stroke:var(--paper);stroke-width:1}
svg .bar{fill:var(--s)}svg .series-text{fill:var(--s)}svg .alarm{fill:var(--alarm);stroke:var(--paper);stroke-width:1}
.s0{--s:var(--c0)}.s1{--s:var(--c1)}.s2{--s:var(--c2)}.s3{--s:var(--c3)}.s4{--s:var(--c4)}.s5{--s:var(--c5)}
svg .strong{font-weight:700}svg .small{font-size:11px}
svg .group{fill:none;stroke:var(--line);stroke-width:1.5}svg .edge{fill:none;stroke:var(--dim)}svg .tip{fill:var(--dim)}
svg .node rect{fill:var(--panel);stroke:var(--s);stroke-width:1.5}
svg .alone rect{stroke:var(--line)}svg .stub rect{fill:none;stroke:var(--dim);stroke-dasharray:4 3}
svg .h0{fill:var(--h0)}svg .h1{fill:var(--h1)}svg .h2{fill:var(--h2)}svg .h3{fill:var(--h3)}svg .h4{fill:var(--h4)}
svg .h5{fill:var(--h5)}svg .h6{fill:var(--h6)}svg .h7{fill:var(--h7)}svg .h8{fill:var(--h8)}svg .not-finite{fill:var(--c3)}
)css";
}

}  // namespace rullama::drawing
