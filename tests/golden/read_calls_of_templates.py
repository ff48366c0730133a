"""Reads the calls that chat templates render, of every template in a folder: llama.cpp's models/templates, say.

    tests/golden/read_calls_of_templates.py FOLDER [WORD …]

Prints a line for each template that has calls, and what was wrong where something was; with words those whose names have one,
with what was learnt.
"""

import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "speech"), str(TESTS / "chat"), str(TESTS), str(TESTS.parent / "tools")]
from reading import CALLS, TOOLS, learn_and_read, written, wrong  # noqa: E402


def look_at(path, told):
    template = path.read_text()
    (form,) = learn_and_read(template, [])
    lines, n, bad = [], 0, None
    for name, calls in CALLS.items():
        text = written(template, calls, form["as_text"])
        if text is None or text[1].count(calls[0][0]) < len(calls):
            lines.append(f"    {name}: not rendered")
            continue
        n += 1
        read = learn_and_read(template, [(*text, TOOLS)])[1]
        bad = bad or wrong(read, calls)
        if told or wrong(read, calls):
            lines.append(f"    {name}: {wrong(read, calls)}; {text[1]!r}; {read}")
    if n == 0 and not form["known"]:
        return None
    print(f"{path.stem}: {'WRONG' if bad else 'not rendered' if n == 0 else 'good'}, {n} rendered", *lines, sep="\n")
    if told:
        print(form)
    return not bad if n else None


def main():
    words = sys.argv[2:]
    paths = [
        p for p in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")) if not words or any(w in p.stem for w in words)
    ]
    results = [look_at(path, bool(words)) for path in paths]
    print(
        f"{len(paths)} templates, {results.count(None)} without calls, {results.count(True)} read, {results.count(False)} not"
    )


if __name__ == "__main__":
    main()
