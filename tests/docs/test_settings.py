"""Each setting of attention methods has a line in the documents' table, and each line a setting."""

import re

from harness import ROOT


def test_settings_are_documented():
    source = (ROOT / "src/engine/settings.c").read_text(encoding="utf-8")
    table = (ROOT / "docs/attention.md").read_text(encoding="utf-8").partition("## Settings")[2].partition("\n## ")[0]
    known = re.findall(r'^    \{"([a-z_.]+)", AT', source, flags=re.M)
    assert len(known) > 10 and known == re.findall(r"^(?:\| )?`([a-z_.]+)` \|", table, flags=re.M)
