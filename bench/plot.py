"""Small plots as SVG, without a library: points and lines on linear or logarithmic axes, and bars."""

from __future__ import annotations

import math
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 64, 20, 44, 56
COLOURS = ("#1f5fa8", "#c4501b", "#2e8540", "#7b4fa3", "#8a6d1d", "#555555")


def number(x):
    if abs(x) >= 1024 and x % 1024 == 0:
        return f"{x / 1024:g}k"
    return f"{x:g}"


def linear_ticks(top, low=0):
    """Ticks of an axis from low <= 0 to top: multiples of a round number, 0 among them."""
    span = top - low
    step = 10 ** math.floor(math.log10(span / 4))
    step *= next(m for m in (1, 2, 5, 10) if span / (step * m) <= 6)
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(top / step + 1e-9) + 1)]


def text(x, y, words, anchor="middle", size=12, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {more}>{escape(words)}</text>'


def line(x1, y1, x2, y2, colour="#dddddd", width=1):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def document(title, parts):
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            text(LEFT, 24, title, "start", 15),
            *parts,
            "</svg>",
            "",
        ]
    )


def y_axis(top, label, low=0):
    """The axis from low <= 0 to `top`, and the function that places a value on it."""
    top = max(top, 0)
    if top == low:  # all values are 0
        top = 1

    def place(value):
        return HEIGHT - BOTTOM - (value - low) / (top - low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in linear_ticks(top, low):
        parts.append(line(LEFT, place(tick), WIDTH - RIGHT, place(tick)))
        parts.append(text(LEFT - 6, place(tick) + 4, f"{tick:g}", "end"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(text(16, middle, label, more=f'transform="rotate(-90 16 {middle:.1f})"'))
    return parts, place


def legend(names, styles):
    parts, x = [], LEFT + 8
    for name, (colour, dashes) in zip(names, styles):
        y = TOP - 8
        parts.append(
            f'<line x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}" stroke="{colour}" stroke-width="2"'
            + (' stroke-dasharray="5 4"/>' if dashes else "/>")
        )
        parts.append(text(x + 27, y + 4, name, "start"))
        x += 44 + 7 * len(name)
    return parts


def curves(title, x_label, y_label, series, x_values):
    """`series`: {name: ([(x, y)], is a theory: dashed, without marks)}. The places on the x axis are evenly spaced,
    in order."""
    ys = [y for points, _ in series.values() for _, y in points]
    parts, y_place = y_axis(1.08 * max(ys), y_label, 1.08 * min(0, *ys))
    x_values = sorted(set(x_values))
    gap = (WIDTH - LEFT - RIGHT - 40) / max(1, len(x_values) - 1)
    x_place = {x: LEFT + 20 + i * gap for i, x in enumerate(x_values)}
    for x, place in x_place.items():
        parts.append(line(place, HEIGHT - BOTTOM, place, HEIGHT - BOTTOM + 5, "#888888"))
        parts.append(text(place, HEIGHT - BOTTOM + 19, number(x)))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label))
    styles = []
    for i, (points, theory) in enumerate(series.values()):
        colour = COLOURS[i % len(COLOURS)]
        styles.append((colour, theory))
        where = [(x_place[x], y_place(y)) for x, y in sorted(points)]
        dashes = ' stroke-dasharray="5 4"' if theory else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        if not theory:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in where]
    return document(title, [*parts, *legend(list(series), styles)])


def marks(title, x_label, y_label, series, n):
    """`series`: {name: [(x, y)]}, x an integer below n; several points may have one x."""
    parts, y_place = y_axis(1.08 * max(y for points in series.values() for _, y in points), y_label)
    gap = (WIDTH - LEFT - RIGHT) / n
    for x in range(n):
        parts.append(text(LEFT + (x + 0.5) * gap, HEIGHT - BOTTOM + 19, str(x), size=11))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label))
    for i, points in enumerate(series.values()):
        shift = gap * (i - (len(series) - 1) / 2) / (len(series) + 1)
        for x, y in points:
            place = LEFT + (x + 0.5) * gap + shift
            parts.append(
                f'<circle cx="{place:.1f}" cy="{y_place(y):.1f}" r="3" fill="{COLOURS[i]}" fill-opacity="0.8"/>'
            )
    return document(title, [*parts, *legend(list(series), [(COLOURS[i], False) for i in range(len(series))])])


def trade(title, x_label, y_label, series):
    """`series`: {name: [(x, y, label)]}, x > 0 on a logarithmic axis: what is gained (y) against what is lost (x)."""
    points = [point for each in series.values() for point in each]
    parts, y_place = y_axis(1.08 * max(y for _, y, _ in points), y_label)
    low, high = math.log10(min(x for x, _, _ in points)) - 0.15, math.log10(max(x for x, _, _ in points)) + 0.15

    def x_place(x):
        return LEFT + (math.log10(x) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    for power in range(math.floor(low), math.ceil(high)):
        for x in (m * 10.0**power for m in (1, 2, 5)):
            if low <= math.log10(x) <= high:
                parts.append(line(x_place(x), TOP, x_place(x), HEIGHT - BOTTOM))
                parts.append(text(x_place(x), HEIGHT - BOTTOM + 19, f"{x:g}"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label))
    for i, each in enumerate(series.values()):
        where = [(x_place(x), y_place(y), label) for x, y, label in sorted(each)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in where)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[i]}" stroke-width="2"/>')
        for x, y, label in where:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{COLOURS[i]}"/>')
            parts.append(text(x + 5, y - 7, label, "start", 10))
    return document(title, [*parts, *legend(list(series), [(COLOURS[i], False) for i in range(len(series))])])


def bars(title, y_label, groups):
    """`groups`: {name: {series: value}}, each value a bar with its number on top."""
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    top = 1.15 * max(value for values in groups.values() for value in values.values())
    parts, place = y_axis(top, y_label)
    group_width = (WIDTH - LEFT - RIGHT) / len(groups)
    width = min(60, 0.8 * group_width / len(series))
    for g, (name, values) in enumerate(groups.items()):
        middle = LEFT + (g + 0.5) * group_width
        parts.append(text(middle, HEIGHT - BOTTOM + 19, name))
        for i, (key, value) in enumerate(values.items()):
            x = middle + (i - len(values) / 2) * width
            colour = COLOURS[series.index(key) % len(COLOURS)]
            parts.append(
                f'<rect x="{x:.1f}" y="{place(value):.1f}" width="{width - 3:.1f}" '
                f'height="{HEIGHT - BOTTOM - place(value):.1f}" fill="{colour}"/>'
            )
            parts.append(text(x + (width - 3) / 2, place(value) - 5, f"{value:.0f}", size=11))
    return document(title, [*parts, *legend(series, [(COLOURS[i % len(COLOURS)], False) for i in range(len(series))])])
