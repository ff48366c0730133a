"""The README's commands, in its order, do what it says they print, in a checkout where `make demo` has run."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from harness import HANG, ROOT

LINES = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


def blocks():
    """(command, the lines that follow it) for each `$ ./yalm models/fable-4m …`."""
    found = []
    for at, line in enumerate(LINES):
        if line.startswith("    $ ./yalm models/fable-4m"):
            rest = []
            for other in LINES[at + 1 :]:
                if (other.strip() and not other.startswith("    ")) or other.startswith("    $ "):
                    break
                rest.append(other[4:])
            found.append((line[6:], "\n".join(rest).strip("\n").split("\n")))
    return found


def test_there_are_commands():
    assert len(blocks()) >= 6


@pytest.fixture(scope="module", autouse=True)
def own_cache(yalm, tmp_path_factory):
    """The user's stays as it is. The bundled model is converted before the first command, as in the demo."""
    before = os.environ.get("XDG_CACHE_HOME"), os.environ.get("YALM_CONVERTER")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["YALM_CONVERTER"] = str(ROOT / "tools")
    subprocess.run([yalm, ROOT / "models/fable-4m", "-m", "info"], check=True, capture_output=True)
    yield
    for name, value in zip(("XDG_CACHE_HOME", "YALM_CONVERTER"), before):
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value


def test_the_demo_says_what_the_readme_says():
    """The command that the README shows is the one that the demo runs, and the models of the other examples are there."""
    demo = (ROOT / "tools/demo.sh").read_text(encoding="utf-8")
    at = next(i for i, line in enumerate(LINES) if line == "    $ make demo")
    command = next(line.strip() for line in LINES[at:] if line.startswith("    ./yalm"))
    real, question = re.search(r"^real=(.*)$", demo, re.M)[1], re.search(r"^ *question='(.*)'$", demo, re.M)[1]
    assert command == f"./yalm {real} -m chat -i '{question}' --temp 0"
    assert f"`./yalm {real}` talks with you" in "\n".join(LINES)
    assert (ROOT / "models/fable-4m/config.json").exists()


def test_the_demo_s_answer(yalm, monkeypatch):
    """Where its model has been fetched."""
    model = next((ROOT / "build/real").glob("SmolLM2-*.gguf"), None)
    if model is None:
        pytest.skip("`make demo` has not run here")
    at = next(i for i, line in enumerate(LINES) if "-m chat -i 'Give three tips" in line)
    words = LINES[at].strip().replace("./yalm build/smollm2.gguf", f"{yalm} {model}")
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(":")[0] == LINES[at + 1].strip().split(":")[0]  # the rest may differ on another processor


@pytest.mark.parametrize("command, printed", blocks(), ids=[command for command, _ in blocks()])
def test_command_prints_that(yalm, command, printed):
    words = command.replace("./yalm", str(yalm))
    done = subprocess.run(["bash", "-c", words], cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    if not re.search(r" -m | --\w*tokenize| --verify", command):
        # A completion's text may differ on another processor, by the last bit of a probability; what is said of it may not.
        said = r"(memory|cpu|prefill|decode|speculation|generated|last logits):"
        labels = [match[1] for match in (re.match(said, line) for line in printed) if match]
        assert [line.split(":")[0] for line in done.stderr.splitlines()] == labels
        assert done.stdout.startswith("Once upon a time")
        return
    found = done.stdout.strip("\n").split("\n")
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
    assert set(re.findall(r"`(\w+For\w+)`", row)) == {name for name in [*ARCHITECTURES, *WHOLES] if "For" in name}
