"""What the tests of packages share: sentences that the program in place says."""

import subprocess

import pytest
from harness import ROOT, built

ASK = ("-i", "Once upon a time", "-n", "12", "--temp", "0", "-q")


@pytest.fixture(scope="session")
def sentence(fable):
    """What the bundled model makes of it."""
    done = subprocess.run([built(ROOT / "yalm"), fable, *ASK, "--no-echo"], capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")
