"""Real schemas with documents that they take and forbid, as MaskBench has them: how many schemas yalm reads rightly.

usage: maskbench.py FILE.jsonl.xz      each line: {"name", "schema", "tests": [{"valid", "data"}, …]}
Needs build/release/tests/grammar/match (`make test-programs`). A schema passes when it is read, each valid document is a text
of it, compact, with blanks or indented, and no invalid one is.
"""

from __future__ import annotations

import collections
import json
import lzma
import subprocess
import sys
import tempfile
from pathlib import Path

MATCH = Path(__file__).parent.parent / "build/release/tests/grammar/match"
FORMS = ({"separators": (",", ":")}, {"separators": (", ", ": ")}, {"indent": 2})


def judge(entry: dict, path: str) -> str:
    Path(path).write_text(json.dumps(entry["schema"]))
    texts = [json.dumps(test["data"], ensure_ascii=False, **form) for test in entry["tests"] for form in FORMS]
    try:
        done = subprocess.run(
            [str(MATCH), "schema", path],
            input="".join(text + "\0" for text in texts),
            capture_output=True,
            text=True,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    if done.returncode:
        return "refused" if done.returncode == 2 else "crash"
    answers = [answer == "yes" for answer in done.stdout.splitlines()]
    taken = [any(answers[i : i + len(FORMS)]) for i in range(0, len(answers), len(FORMS))]
    valid = [bool(test["valid"]) for test in entry["tests"]]
    if any(took and not may for took, may in zip(taken, valid)):
        return "a forbidden document is taken"
    return "passing" if taken == valid else "a valid document is not taken"


def main() -> None:
    count: collections.Counter = collections.Counter()
    with tempfile.NamedTemporaryFile() as file, lzma.open(sys.argv[1], "rt") as lines:
        for line in lines:
            count[judge(json.loads(line), file.name)] += 1
    for verdict, n in count.most_common():
        print(f"{n:6} {verdict}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
