"""SVG drawings: panels with lines or bars, readable on light and dark pages."""

import math
from html import escape

STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  .grid { stroke: #d8dee4; stroke-width: 1; }
  .axis { stroke: #8c959f; stroke-width: 1; }
  text { font-family: -apple-system, "Segoe UI", Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #1f2328; font-size: 12px; }
  .title { font-size: 17px; font-weight: 700; }
  .panel { font-size: 13px; font-weight: 600; }
  .note, .tick { fill: #57606a; font-size: 11px; }
  .strong { font-weight: 700; }
  .end { text-anchor: end; } .middle { text-anchor: middle; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b22; stroke: #30363d; }
    .grid { stroke: #2a313a; } .axis { stroke: #6e7681; }
    text { fill: #e6edf3; } .note, .tick { fill: #9ea7b3; }
  }
"""
# Ours, auto: a strong colour. Others: quieter ones that differ in lightness, too.
OURS = "#d9480f"
PALETTE = ["#6b7785", "#2f9e77", "#7fb800", "#8ab6e8", "#4f8fd6", "#2b67b1", "#6a4fb0", "#b56ba8", "#9a7b2d"]


class Drawing:
    """One picture with a title, a note below it, and whatever is drawn into it."""

    def __init__(self, width, height, title, note):
        self.width, self.height, self.title, self.parts = width, height, title, []
        self.parts.append(f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>')
        self.text(20, 32, title, "title")
        self.text(20, 52, note, "note")

    def text(self, x, y, text, kind="", colour=None):
        fill = f' style="fill:{colour}"' if colour else ""
        self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{fill}>{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, kind):
        self.parts.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def save(self, path):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" '
                f'aria-labelledby="title">\n<title id="title">{escape(self.title)}</title>\n<style>{STYLE}</style>\n')
        path.write_text(head + "\n".join(self.parts) + "\n</svg>\n")


def legend(drawing, x, y, names):
    """Draws a row of names with their colours; `names` are (name, colour)."""
    for name, colour in names:
        drawing.parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 18}" y2="{y - 4}" stroke="{colour}" stroke-width="3"/>')
        drawing.text(x + 23, y, name)
        x += 40 + 7 * len(name)


class Scale:
    """Places values of one axis, linearly or by their logarithm."""

    def __init__(self, values, start, stop, log):
        self.log, self.start, self.stop = log, start, stop
        low, high = min(values), max(values)
        if log:
            self.low, self.high = low / 1.15, high * 1.15
        else:
            self.low, self.high = 0, high * 1.06 or 1

    def at(self, value):
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self):
        if not self.log:
            step = 10 ** math.floor(math.log10(self.high / 3))
            step *= next(f for f in (1, 2, 5, 10) if self.high / (step * f) <= 5)
            return [n * step for n in range(int(self.high / step) + 1)]
        factors = (1, 2, 5) if self.high / self.low < 60 else (1,) if self.high / self.low < 1e5 else (1,)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks = [f * 10.0**d for d in decades for f in factors if self.low <= f * 10.0**d <= self.high]
        return ticks if len(ticks) <= 8 else ticks[::2]


def lines(drawing, box, title, series, labels, shown, log=False, floor=None):
    """Draws a panel of lines. `series` are (name, colour, width, values by label), `labels` the
    positions on the x axis in order with their texts, `shown` formats values of the y axis."""
    x, y, width, height = box
    drawing.text(x, y - 12, title, "panel")
    keys = [key for key, _ in labels]
    step = width / max(1, len(keys) - 1)
    values = [v for _, _, _, points in series for v in points.values() if v is not None and (v > 0 or not log)]
    if not values:
        return
    scale = Scale(values + ([floor] if floor else []), y + height, y, log)
    for tick in scale.ticks():
        drawing.line(x, scale.at(tick), x + width, scale.at(tick), "grid")
        drawing.text(x - 6, scale.at(tick) + 4, shown(tick), "tick end")
    drawing.line(x, y + height, x + width, y + height, "axis")
    for number, (_, text) in enumerate(labels):
        drawing.text(x + number * step, y + height + 16, text, "tick middle")
    for _, colour, weight, points in series:
        places = [(x + keys.index(key) * step, scale.at(points[key])) for key in keys if points.get(key)]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        drawing.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{weight}" stroke-linejoin="round"/>')
        for px, py in places:
            drawing.parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{weight + 0.7}" fill="{colour}"/>')


def bars(drawing, box, title, rows, shown):
    """Draws a panel of horizontal bars. `rows` are (name or None for a gap, value, colour); the names
    are drawn by the caller, once for all panels of a row."""
    x, y, width, height = box
    drawing.text(x, y - 12, title, "panel")
    most = max((value for _, value, _ in rows if value), default=1)
    step = height / max(1, len(rows))
    for number, (name, value, colour) in enumerate(rows):
        if name is None or value is None:
            continue
        top, length = y + number * step, max(1.0, value / most * (width - 48))
        drawing.parts.append(f'<rect x="{x}" y="{top + 2:.1f}" width="{length:.1f}" height="{step - 4:.1f}" rx="2" fill="{colour}"/>')
        drawing.text(x + length + 5, top + step / 2 + 4, shown(value), "strong" if colour == OURS else "")
    drawing.line(x, y, x, y + height, "axis")
