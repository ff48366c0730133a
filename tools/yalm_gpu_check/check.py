"""The state of a run of gpu_check.py: where things are, what was found, how much time is left; and how commands are run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from .report import markdown

ROOT = Path(__file__).resolve().parents[2]


REFUSAL = re.compile(r"(does|do) not run on the GPU|CUDA: found \w+ weights, expected")


class StepError(Exception):
    """What went wrong, for the report."""


class Refused(StepError):
    """What this build does not do on a GPU, in its own words."""


class Skipped(Exception):
    """Why a step was left out."""


@dataclasses.dataclass
class Done:
    status: int | None  # None: stopped at its time limit
    stdout: str
    stderr: str
    seconds: float


class Check:
    """The state of a run: where things are, what was found, and how much time is left."""

    def __init__(self, options):
        self.options = options
        self.emulated = options.emulated
        self.out = Path(options.output).resolve()
        self.logs = self.out / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        self.ends = self.began + options.seconds
        self.step_ends = self.ends
        self.build = ROOT / ("build/emulated" if self.emulated else "build/release")
        self.programs = self.build if self.emulated else ROOT / "build/cuda"
        self.yalm = self.build / "yalm" if self.emulated else ROOT / "yalm"
        self.environment = dict(os.environ)
        self.models = self.room_for_models()
        self.found = {"emulated": self.emulated, "steps": []}
        self.groups = set()  # of the processes that run

    def room_for_models(self):
        """A folder for models: in memory where the largest fits, since a disk is slow or small."""
        memory = Path("/dev/shm")
        needed = 24 << 30
        if not self.emulated and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > needed:
            text = Path("/proc/meminfo").read_text(encoding="ascii")
            available = re.search(r"MemAvailable: *(\d+) kB", text)
            if available and int(available[1]) * 1024 > needed:
                folder = memory / f"yalm-gpu-check-{os.getpid()}"
                folder.mkdir()
                return folder
        return self.out

    # ---------------------------------------------------------------------------------- commands

    def try_run(self, name, command, limit=None, environment=None):
        """Runs a command within the step's time and `limit` seconds. What it says goes to logs/NAME.out and .err as
        it says it."""
        left = min(self.step_ends, self.ends) - time.monotonic()
        seconds = max(0.5, min(left, limit or left))
        words = [str(word) for word in command]
        out, err = self.logs / f"{name}.out", self.logs / f"{name}.err"
        began = time.monotonic()
        with out.open("wb") as stdout, err.open("wb") as stderr:
            stderr.write(f"$ {' '.join(words)}\n".encode())
            stderr.flush()
            try:
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=ROOT, start_new_session=True,
                    env={**self.environment, **(environment or {})},
                )  # fmt: skip
            except OSError as error:
                raise StepError(f"{name}: {words[0]}: {error.strerror}") from None
            self.groups.add(process.pid)
            try:
                status = process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:  # also where this program is being stopped
                if process.poll() is None:
                    self.stop(process.pid)
                    process.wait()
                self.groups.discard(process.pid)
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in (out, err)]
        return Done(status, texts[0], texts[1].partition("\n")[2], time.monotonic() - began)

    def run(self, name, command, limit=None, environment=None):
        """The same; raises StepError where it fails, Refused where it says that it does not do this on a GPU."""
        done = self.try_run(name, command, limit, environment)
        if done.status is None:
            raise StepError(f"{name}: no end after {done.seconds:.0f} s")
        if done.status != 0:
            lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
            for line in lines:
                if REFUSAL.search(line):
                    raise Refused(line)
            raise StepError(f"{name}: exit status {done.status}: {lines[-1][:200]}")
        return done

    def stop(self, group):
        """Ends a command and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

    # ---------------------------------------------------------------------------------- parts of a step

    def each(self, works):
        """Runs (name, work) in turn, whatever becomes of one; raises what they raised together, once all have had
        their turn."""
        failed, refused = [], []
        for name, work in works:
            try:
                if (result := work() or "ok") != "ok":
                    refused.append(result.removeprefix("ok, refused: "))
            except Skipped as why:
                refused.append(str(why).removeprefix("refused: "))
            except Refused as why:
                refused.append(f"{name}: {why}")
                self.found.setdefault("refused", {})[name] = str(why)
            except StepError as why:
                failed.append(str(why))
            except (OSError, ValueError, KeyError, IndexError, subprocess.SubprocessError) as why:
                failed.append(f"{name}: {type(why).__name__}: {why}")
        if failed:
            raise StepError("; ".join(failed))
        if refused and len(refused) == len(works):
            raise Skipped("refused: " + "; ".join(refused))
        return f"ok, refused: {'; '.join(refused)}" if refused else "ok"

    # ---------------------------------------------------------------------------------- what it leaves

    def write(self):
        texts = {"gpu-check.json": json.dumps(self.found, indent=1) + "\n", "gpu-check.md": markdown(self.found)}
        for name, text in texts.items():
            new = self.out / f"{name}.new"
            new.write_text(text, encoding="utf-8")
            new.replace(self.out / name)

    def close(self):
        for group in list(self.groups):
            self.stop(group)
        for folder in (self.out, self.models):
            for path in [*folder.glob("*.bin"), *folder.glob("*.nomad")]:
                path.unlink(missing_ok=True)
        if self.models != self.out:
            shutil.rmtree(self.models, ignore_errors=True)
