"""What tests/run.py reads out of a cmocka program's lines: each test once, by its whole name, in each group."""

import importlib.util
import sys

import pytest
from harness import ROOT

# Loaded by its path: bench/ has a run.py too, and other tests put that folder first.
specification = importlib.util.spec_from_file_location("tests_run", ROOT / "tests/run.py")
run = sys.modules["tests_run"] = importlib.util.module_from_spec(specification)
specification.loader.exec_module(run)

LINES = """\
[==========] Running 3 test(s).
[ RUN      ] odd shapes, avx2
[       OK ] odd shapes, avx2
[ RUN      ] odd shapes, amx
[  SKIPPED ] odd shapes, amx
[ RUN      ] odd sizes
{third}
[==========] 3 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] odd shapes, amx

 1 SKIPPED TEST(S)
"""


@pytest.mark.parametrize(
    "third, status, expected",
    [
        ("[       OK ] odd sizes", 0, (2, 0, 1)),
        ("[  FAILED  ] odd sizes", 1, (1, 1, 1)),
        ("", 139, (1, 1, 1)),  # it came to no end
        ("[       OK ] odd sizes", 1, (2, 1, 1)),  # and something failed that no line names
    ],
)
def test_cmocka_is_counted_by_whole_names(third, status, expected):
    counts = run.count_cmocka(None, status, LINES.format(third=third))
    assert (counts.passed, counts.failed, counts.skipped) == expected


def test_groups_are_counted_apart():
    text = LINES.format(third="[       OK ] odd sizes")
    counts = run.count_cmocka(None, 0, text + text)
    assert (counts.passed, counts.failed, counts.skipped) == (4, 0, 2)
