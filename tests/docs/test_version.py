"""The version is the same wherever it stands."""

import re

from harness import ROOT


def found(pattern, file):
    return re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), flags=re.M)[1]


def test_version_is_said_alike():
    version = found(r"^VERSION +:= (\S+)$", "Makefile")
    assert found(r'^VERSION = "(.+)"$', "tools/convert.py") == version
    assert found(r"^## \[([^\]]+)\]", "CHANGELOG.md") == version
