"""Faults to plant (tests/faults) follow the source: each one's piece of it is there, once."""

import sys

from harness import ROOT

sys.path.insert(0, str(ROOT / "tests/faults"))

from faults import FAULTS


def test_each_fault_can_be_planted():
    counts = {fault.about: (ROOT / fault.path).read_text(encoding="utf-8").count(fault.right) for fault in FAULTS}
    assert [about for about, n in counts.items() if n != 1] == []
