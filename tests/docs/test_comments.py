"""Comments of the sources: a file that one names is there."""

import re

from harness import ROOT

SOURCES = sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".c", ".h", ".cu", ".cuh"))
NAMED = re.compile(r"[\w/]+\.(?:cuh|cu|cc|c|h|py|md|mk)\b")


def test_comments_name_files_that_are_there():
    there = [
        str(path.relative_to(ROOT))
        for folder in ("src", "docs", "tests", "tools", "bench")
        for path in (ROOT / folder).rglob("*.*")
    ]
    gone = []
    for source in SOURCES:
        for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
            for name in NAMED.findall(line.partition("//")[2]):
                if not any(("/" + path).endswith("/" + name) for path in there):
                    gone.append(f"{source.relative_to(ROOT)}:{number}: {name}")
    assert gone == []
