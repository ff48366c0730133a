#!/usr/bin/env python3
"""Writes src/text/unicode_tables.h: where the `tokenizers` library's tables of characters are of another Unicode
version than utf8proc's.

Its forms (NFC …) and marks are those of Unicode 9, its small letters those of the newest. Needs `pip install
tokenizers` and libutf8proc: development only. Characters of Unicode 15.1 and 16, which utf8proc 2.8 does not have and
later ones do, are named here.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from tokenizers import normalizers

OUT = Path(__file__).resolve().parents[2] / "src/text/unicode_tables.h"
STABLE, COMPAT, COMPOSE, DECOMPOSE = 2, 4, 8, 16
MARKS = (6, 7, 8)  # of utf8proc's categories
# Marks, and characters that consist of others, of Unicode 15.1 and 16.
NEWER = (
    "897 105c9 105e4 10d69-10d6d 10efc 11383 11385 1138e 11391 113b8-113c0 113c2 113c5 113c7-113ca 113cc-113d0 113d2 "
    "113e1-113e2 "
    "11f5a 1611e-1612f 16d68-16d6a 1ccd6-1ccf9 1e5ee-1e5ef"
)


class Utf8proc:
    def __init__(self):
        self.library = ctypes.CDLL("libutf8proc.so.2")
        self.library.utf8proc_map.argtypes = [
            ctypes.c_char_p,
            ctypes.c_ssize_t,
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_int,
        ]
        self.library.utf8proc_map.restype = ctypes.c_ssize_t
        self.free = ctypes.CDLL(None).free
        self.free.argtypes = [ctypes.c_void_p]

    def form(self, text, options):
        data, made = text.encode(), ctypes.c_void_p()
        n = self.library.utf8proc_map(data, len(data), ctypes.byref(made), STABLE | options)
        result = ctypes.string_at(made, n).decode()
        self.free(made)
        return result

    def lower(self, point):
        return self.library.utf8proc_tolower(point)

    def is_mark(self, point):
        return self.library.utf8proc_category(point) in MARKS


def later(library, points):
    """Characters that the forms or the marks of Unicode 9 do not know."""
    forms = {
        normalizers.NFC(): COMPOSE,
        normalizers.NFD(): DECOMPOSE,
        normalizers.NFKC(): COMPOSE | COMPAT,
        normalizers.NFKD(): DECOMPOSE | COMPAT,
    }
    strip = normalizers.StripAccents()
    found = set()
    for part in NEWER.split():
        first, _, last = part.partition("-")
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    for point in points:
        # Beside marks of the lowest and the highest class, an order shows.
        c = chr(point)
        for theirs, options in forms.items():
            texts = (c, f"a\u0334{c}", f"a{c}\u0334", f"a\u0345{c}", f"a{c}\u0345")
            if any(theirs.normalize_str(text) != library.form(text, options) for text in texts):
                found.add(point)
        if (strip.normalize_str(f"a{c}") == "a") != library.is_mark(point):
            found.add(point)
    return sorted(found)


def ranges(points):
    found = []
    for point in points:
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return found


def main():
    library, lower = Utf8proc(), normalizers.Lowercase()
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    small = {}
    for point in points:
        if point != 0x130 and lower.normalize_str(chr(point)) != chr(library.lower(point)):
            small[point] = ord(lower.normalize_str(chr(point)))
    text = f"""// Made by tests/golden/{Path(__file__).name}.
#pragma once
#include <stdint.h>

// Characters that are younger than Unicode 9, whose forms and marks `tokenizers` has: to these they are signs like any other.
// First and last.
static const int32_t later_characters[][2] = {{
{chr(10).join(f"    {{0x{first:x}, 0x{last:x}}}," for first, last in ranges(later(library, points)))}
}};

// Small letters that utf8proc may not have yet: first and last capital, and what is added.
static const int32_t later_small[][3] = {{
{chr(10).join(f"    {{0x{first:x}, 0x{last:x}, {change}}}," for first, last, change in runs(small))}
}};
"""
    OUT.write_text(text)
    subprocess.run(["clang-format", "-i", str(OUT)], check=True)


def runs(small):
    found = []
    for point, letter in sorted(small.items()):
        if found and found[-1][1] == point - 1 and found[-1][2] == letter - point:
            found[-1][1] = point
        else:
            found.append([point, point, letter - point])
    return found


if __name__ == "__main__":
    main()
