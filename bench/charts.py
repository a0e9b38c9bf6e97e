"""Bar charts of speed measurements, as SVG files that follow the reader's light or dark colours.

Each case is a group of bars, one for an engine. A bar's length is the engine's speed as a share of
the fastest engine of its case, so that cases of different units stand in one chart and a longer bar
is always faster. The text of a chart depends on its arguments alone.

Python 3.11 and its standard library.
"""
from html import escape
from typing import NamedTuple

# Pixels. The chart is narrow enough to be read on a telephone, where it is scaled down.
WIDTH = 480
MARGIN = 12
NAME_WIDTH = 164  # of the engines' names
VALUE_WIDTH = 84  # after the longest bar
TITLE_HEIGHT = 44
CASE_HEIGHT = 22
BAR_HEIGHT = 13
BAR_PITCH = 18
GROUP_GAP = 8

STYLE = (
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--dim:#57606a;--own:#0969da;--peer:#b4bcc6}"
    "@media (prefers-color-scheme:dark)"
    "{:root{--paper:#0d1117;--ink:#e6edf3;--dim:#9aa4af;--own:#58a6ff;--peer:#4c555f}}"
    "text{font:12px system-ui,sans-serif;fill:var(--ink)}.title{font-size:15px;font-weight:600}"
    ".case{font-weight:600}.dim{fill:var(--dim)}.end{text-anchor:end}"
    ".paper{fill:var(--paper)}.own{fill:var(--own)}.peer{fill:var(--peer)}"
)


class Bar(NamedTuple):
    engine: str
    value: str  # with its unit
    speed: float  # in any unit that the bars of the case share; above 0
    own: bool  # drawn in the accent colour


class Case(NamedTuple):
    label: str
    bars: list[Bar]


def text(x, y, words, style=""):
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:g}" y="{y:g}"{kind}>{escape(words)}</text>'


def draw_bar(bar, top, fastest):
    """The name, the bar and the value of one engine, below `top`."""
    start = MARGIN + NAME_WIDTH + 6
    length = (WIDTH - MARGIN - VALUE_WIDTH - start) * bar.speed / fastest
    baseline = top + BAR_HEIGHT - 2
    colour = "own" if bar.own else "peer"
    return [
        text(start - 6, baseline, bar.engine, "end" if bar.own else "end dim"),
        f'<rect class="{colour}" x="{start}" y="{top}" width="{length:.1f}" height="{BAR_HEIGHT}" rx="2"/>',
        text(start + length + 6, baseline, bar.value, "" if bar.own else "dim"),
    ]


def chart(title, cases):
    """The SVG text of `cases`, one or more, each of one bar or more."""
    parts = [
        text(MARGIN, 20, title, "title"),
        text(MARGIN, 37, "Longer is faster; the fastest engine of each case fills the width.", "dim"),
    ]
    top = TITLE_HEIGHT
    for case in cases:
        parts.append(text(MARGIN, top + 15, case.label, "case"))
        top += CASE_HEIGHT
        fastest = max(bar.speed for bar in case.bars)
        for bar in case.bars:
            parts += draw_bar(bar, top, fastest)
            top += BAR_PITCH
        top += GROUP_GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" '
        f'height="{top}" role="img">'
    )
    body = [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>"]
    body += [f'<rect class="paper" width="{WIDTH}" height="{top}"/>', *parts, "</svg>"]
    return "\n".join(body) + "\n"
