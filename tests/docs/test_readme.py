"""The README's commands do what it says they print."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from harness import HANG, ROOT

LINES = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


def blocks():
    """(command, the lines that follow it) for each `$ ./yalm build/fable-4m.bin …`."""
    found = []
    for at, line in enumerate(LINES):
        if line.startswith("    $ ./yalm build/fable-4m.bin"):
            rest = []
            for other in LINES[at + 1 :]:
                if (other.strip() and not other.startswith("    ")) or other.startswith("    $ "):
                    break
                rest.append(other[4:])
            found.append((line[6:], "\n".join(rest).strip("\n").split("\n")))
    return found


def test_there_are_commands():
    assert len(blocks()) >= 6


@pytest.mark.parametrize("command, printed", blocks(), ids=[command for command, _ in blocks()])
def test_command_prints_that(yalm, fable, command, printed):
    words = command.replace("./yalm", str(yalm)).replace("build/fable-4m.bin", str(fable))
    done = subprocess.run(["bash", "-c", words], cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    if not re.search(r" -m | --\w*tokenize| --verify", command):
        # A completion's text may differ on another processor, by the last bit of a probability; what is said of it may not.
        said = r"(memory|cpu|prefill|decode|speculation|generated|last logits):"
        labels = [match[1] for match in (re.match(said, line) for line in printed) if match]
        assert [line.split(":")[0] for line in done.stderr.splitlines()] == labels
        assert done.stdout.startswith("Once upon a time")
        return
    found = done.stdout.replace(str(fable), "build/fable-4m.bin").strip("\n").split("\n")
    if "perplexity" in command:
        assert found[0].split()[:3] == printed[0].split()[:3]
        ours, theirs = (float(re.search(r"PPL = ([\d.]+)", line[0])[1]) for line in (found, printed))
        assert abs(ours - theirs) < 1e-3 * theirs
    else:
        assert found == printed


def test_architectures_are_those_that_the_converter_takes(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    from yalm_convert.architectures import ARCHITECTURES
    from yalm_convert.multimodal import WHOLES

    row = next(line for line in LINES if line.startswith("| architectures |"))
    assert set(re.findall(r"`(\w+For\w+)`", row)) == {*ARCHITECTURES, *WHOLES}
