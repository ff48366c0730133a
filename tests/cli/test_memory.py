"""What a process takes of the machine's memory: the file's pages, the cache and little else; copies in huge pages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import VARIANT

MODEL = Path(__file__).resolve().parents[2] / "models" / "fable-4m"
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
ARGUMENTS = ["-i", "Once upon a time", "-n", "40", "--seed", "5", "--set", "text.ignore_eos=on"]
TEXT = ["-m", "perplexity", "-d", "cpu", "-f", MODEL / "heldout.txt", "--max-tokens", "200"]
UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}


# A process starts with the largest resident memory of the one that made it, so that one must be small, as pytest is not.
LAUNCHER = """
import os, sys
out = int(sys.argv[1])
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
os.write(out, str(usage.ru_maxrss * 1024).encode())
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run(command):
    """(exit code, stdout, stderr, largest resident memory in bytes)"""
    reader, writer = os.pipe()
    launched = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(writer), *(str(part) for part in command)]
    done = subprocess.run(launched, capture_output=True, pass_fds=[writer], stdin=subprocess.DEVNULL, check=False)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        resident = int(pipe.read())
    return done.returncode, done.stdout, done.stderr.decode(), resident


@pytest.mark.skipif(VARIANT != "release", reason="sanitizers take memory of their own")
@pytest.mark.parametrize("options", [[], ["--set", "machine.hugepages=on"], ["--ctx", "2048", "--kv", "fp32"]])
def test_resident_memory(yalm, fable, options):
    """The file, the cache, and at most 64 MiB. (Completion and throughput read 128 MiB of their own at the end, to measure the
    machine.)"""
    if "machine.hugepages=on" in options and (not ENABLED.exists() or "[never]" in ENABLED.read_text()):
        pytest.skip("this machine has no huge pages")
    code, _, err, resident = run([yalm, fable, *TEXT, *options])
    assert code == 0, err
    number, unit = re.search(r"cache (\S+) (\S+),", err).groups()
    assert resident <= Path(fable).stat().st_size + float(number) * UNITS[unit] + (64 << 20)


def test_huge_pages(yalm, fable):
    _, usual, _, _ = run([yalm, fable, *ARGUMENTS])
    code, out, err, _ = run([yalm, fable, *ARGUMENTS, "--set", "machine.hugepages=on"])
    if not ENABLED.exists() or "[never]" in ENABLED.read_text():
        assert code == 1 and "no huge pages" in err
        return
    assert code == 0, err
    assert out == usual and "(copied into huge pages)" in err.splitlines()[0]
