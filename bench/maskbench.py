"""Real schemas with documents that they take and forbid, as MaskBench has them: how many schemas yalm reads rightly.

usage: maskbench.py FILE.jsonl.xz      each line: {"name", "schema", "tests": [{"valid", "data"}, …]}
       maskbench.py FOLDER             JSON-Schema-Test-Suite's tests: a folder for each draft
Needs build/release/tests/grammar/match (`make test-programs`). A schema passes when it is read, each valid document is a text
of it, compact, with blanks or indented, and no invalid one is. The names of those that are read wrongly go to stderr.
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


def suite(folder: Path):
    """The groups of each draft; a schema that does not name its own means the folder's."""
    names = {
        "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
        "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    }
    for draft in ("draft4", "draft6", "draft7", "draft2019-09", "draft2020-12"):
        name = names.get(draft, f"http://json-schema.org/draft-0{draft[-1]}/schema#")
        for path in sorted((folder / draft).glob("*.json")):
            for group in json.loads(path.read_text()):
                if isinstance(group["schema"], dict):
                    group["schema"].setdefault("$schema", name)
                yield draft, {"name": f"{draft}/{path.stem}: {group['description']}", **group}


def entries(path: Path):
    if path.is_dir():
        yield from suite(path)
        return
    with lzma.open(path, "rt") as lines:
        for line in lines:
            yield path.name, json.loads(line)


def main() -> None:
    counts: dict = collections.defaultdict(collections.Counter)
    with tempfile.NamedTemporaryFile() as file:
        for source, entry in entries(Path(sys.argv[1])):
            verdict = judge(entry, file.name)
            counts[source][verdict] += 1
            if verdict not in ("passing", "refused"):
                print(f"{verdict}: {entry['name']}", file=sys.stderr)
    for source, count in counts.items():
        print(source + ":", ", ".join(f"{n} {verdict}" for verdict, n in count.most_common()))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
