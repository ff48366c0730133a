#!/usr/bin/env python3
"""Everything that a machine with a GPU can tell about yalm, by one command that needs no network and at most ten minutes: builds for its
architecture, runs the tests of kernels and of whole models on the device, compute-sanitizer on a small model, then measures. Leaves
gpu-check.json and gpu-check.md in the output folder, and each command's output in logs/ there.

usage: gpu_check.py [--output build/gpu-check] [--seconds 600] [--only STEP,…] [--skip STEP,…] [--emulated]

A step that fails, or that runs out of its time, does not stop the others. --emulated runs the same steps on the CPU, as small as they can be, to
test this program where there is no GPU. C libraries that are not installed are taken from build/gpu-deps (tools/gpu_deps.py).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
DEPS = ROOT / "build/gpu-deps"
sys.path.insert(0, str(ROOT / "bench"))

# What is measured: (preset of tools/random_hf_model.py, dtype).
MODELS = [("llama-3.2-1b", "bf16"), ("mistral-7b-v0.2", "fp16")]
DEPTHS, PROMPTS, GENERATED = [0, 4096, 32768], [512, 4096], 64
SMALL_MODELS, SMALL_DEPTHS, SMALL_PROMPTS, SMALL_GENERATED = (
    [("tiny-gqa", "bf16"), ("tiny-window", "fp16")],
    [0, 16],
    [8, 16],
    2,
)


class StepError(Exception):
    """What went wrong, for the report."""


class Skipped(Exception):
    """Why a step was left out."""


class Check:
    """The state of a run: where things are, what was found, and how much time is left."""

    def __init__(self, options):
        self.options = options
        self.out = Path(options.output).resolve()
        self.logs = self.out / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.ends = time.monotonic() + options.seconds
        self.build = ROOT / ("build/emulated" if options.emulated else "build/release")
        self.programs = self.build if options.emulated else ROOT / "build/cuda"
        self.yalm = self.build / "yalm" if options.emulated else ROOT / "yalm"
        self.models = SMALL_MODELS if options.emulated else MODELS
        self.depths, self.prompts, self.generated = (
            (SMALL_DEPTHS, SMALL_PROMPTS, SMALL_GENERATED) if options.emulated else (DEPTHS, PROMPTS, GENERATED)
        )
        self.environment = dict(os.environ)
        self.found = {"steps": [], "emulated": options.emulated}
        self.step_ends = self.ends

    def run(self, name, command, limit=None, **more):
        """Runs a command within the step's time; its output goes to a log too. Raises StepError where it fails."""
        done = self.try_run(name, command, limit, **more)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
            raise StepError(f"{name}: exit status {done.returncode}: {lines[-1]}")
        return done

    def try_run(self, name, command, limit=None, **more):
        left = min(self.step_ends, self.ends) - time.monotonic()
        seconds = max(1.0, min(left, limit or left))
        words = [str(word) for word in command]
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", timeout=seconds, check=False,
                cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, **more,
            )  # fmt: skip
        except FileNotFoundError:
            raise StepError(f"{name}: {words[0]} is not there") from None
        except subprocess.TimeoutExpired:
            raise StepError(f"{name}: no end after {seconds:.0f} s") from None
        (self.logs / f"{name}.log").write_text(f"$ {' '.join(words)}\n{done.stdout}\n{done.stderr}", encoding="utf-8")
        return done


def read_command(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


# ------------------------------------------------------------------------------------------- machine and build


def look_at_machine(check):
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    fields = "name,driver_version,memory.total,compute_cap,clocks.max.sm,clocks.max.mem,power.limit"
    gpu = read_command("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader").splitlines()[:1]
    version = re.search(r"release (\S+),", read_command(nvcc, "--version"))
    check.found["machine"] = {
        "gpu": dict(zip(fields.split(","), (value.strip() for value in gpu[0].split(",")))) if gpu else {},
        "nvcc": version[1] if version else "",
        "cores": os.cpu_count(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": read_command("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"),
    }
    if not gpu and not check.options.emulated:
        raise StepError("nvidia-smi finds no GPU")


def use_carried_libraries(check):
    if not DEPS.is_dir():
        return
    for name, folder in (("CPATH", "include"), ("LIBRARY_PATH", "lib"), ("LD_LIBRARY_PATH", "lib")):
        before = check.environment.get(name)
        check.environment[name] = f"{DEPS / folder}{os.pathsep + before if before else ''}"


def build(check):
    use_carried_libraries(check)
    words = ["make", f"-j{os.cpu_count()}"]
    if check.options.emulated:
        programs = [
            f"{check.build}/tests/cuda/{name}" for name in ("compare_devices", "test_elementwise", "test_matvec")
        ]
        programs = [str(Path(name).relative_to(ROOT)) for name in programs]
        check.run(
            "build",
            [
                *words,
                "VARIANT=emulated",
                "all",
                *programs,
                "build/emulated/bench/cuda_kernels",
                "build/emulated/bench/random_model",
            ],
        )
        return
    capability = check.found["machine"]["gpu"].get("compute_cap", "").replace(".", "")
    words += [f"CUDA_ARCHS={capability}"] if capability else []
    if not shutil.which("nvcc") and Path("/usr/local/cuda/bin/nvcc").exists():
        check.environment["PATH"] += f"{os.pathsep}/usr/local/cuda/bin"
    # First what all else needs: a test that does not compile must not leave us without a program.
    check.run("build", [*words, "all", "cuda"])
    check.found["build_tests"] = check.try_run("build-tests", [*words, "-k", "cuda-check-programs"]).returncode == 0
    if not check.found["build_tests"]:
        raise StepError("build-tests: not all programs were built (logs/build-tests.log)")


# ------------------------------------------------------------------------------------------- tests


def count_cmocka(text):
    return len(re.findall(r"^\[       OK \]", text, re.M)), len(set(re.findall(r"^\[  FAILED  \] (\w+)", text, re.M)))


def test_kernels(check):
    results = check.found["kernel_tests"] = {}
    for program in sorted((check.programs / "tests").rglob("test_*")):
        if program.suffix or not os.access(program, os.X_OK) or "emulator" in program.name:
            continue
        done = check.try_run(program.name, [program], limit=60)
        passed, failed = count_cmocka(done.stdout + done.stderr)
        results[program.name] = {"passed": passed, "failed": max(failed, int(done.returncode != 0))}
    wrong = [name for name, result in results.items() if result["failed"]]
    if wrong or not results:
        raise StepError("failed: " + ", ".join(wrong) if wrong else "no test program was built")


def test_models(check):
    """The device beside the CPU on every model of the parity tests."""
    report = check.out / "models.xml"
    check.environment["YALM_VARIANT"] = "emulated" if check.options.emulated else "release"
    more = ["-k", "tiny-oddvocab"] if check.options.emulated else []
    python = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        f"--junitxml={report}",
        *more,
        "tests/cuda/test_devices.py",
    ]
    done = check.try_run("models", python)
    if not report.exists():
        raise StepError("pytest did not run (logs/models.log)")
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    tests, failed, skipped = (int(suite.get(key)) for key in ("tests", "failures", "skipped"))
    failed += int(suite.get("errors"))
    check.found["model_tests"] = {"passed": tests - failed - skipped, "failed": failed, "skipped": skipped}
    if done.returncode != 0 or skipped == tests:
        raise StepError(f"{failed} failed, {skipped} skipped (logs/models.log)")


def make_model(check, preset, dtype, layers=None):
    import random_model

    path = check.out / f"{preset}-{dtype}.bin"
    if not path.exists():
        program = check.build / "bench/random_model"
        if not program.exists():
            raise StepError("bench/random_model was not built")
        os.environ.update(check.environment)  # where the carried libraries are
        random_model.write(program, path, preset, dtype, layers)
    return path


def sanitize(check):
    """compute-sanitizer's tools on a few tokens of a small model with a window, and of one with experts."""
    if check.options.emulated:
        raise Skipped("the emulator has its own checks")
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(tool).exists():
        raise Skipped("compute-sanitizer is not installed")
    results = check.found["sanitizer"] = {}
    ids = check.out / "ids.txt"
    ids.write_text(" ".join(str(7 * i % 300) for i in range(60)), encoding="ascii")
    for checker in ("memcheck", "racecheck", "initcheck"):
        for preset in ("tiny-window", "tiny-mixtral"):
            model = make_model(check, preset, "fp16")
            run = [check.yalm, model, "-d", "cuda", "--tokens", ids, "-n", "6", "--seed", "1"]
            done = check.try_run(
                f"{checker}-{preset}", [tool, "--tool", checker, "--error-exitcode", "9", *run], limit=60
            )
            said = done.stdout + done.stderr
            if "Device not supported" in said:
                results[checker] = "refuses this device"
                raise Skipped("compute-sanitizer refuses this device")
            wrong = re.findall(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (.*)", said)
            results[f"{checker} {preset}"] = wrong[-1] if wrong else f"exit status {done.returncode}"
            if done.returncode != 0:
                results[f"{checker} {preset}"] += " (FOUND SOMETHING)"
    if any("FOUND" in text for text in results.values()):
        raise StepError("findings in logs/")


# ------------------------------------------------------------------------------------------- measuring


def make_models(check):
    for preset, dtype in check.models:
        make_model(check, preset, dtype)


def shape_arguments(preset, dtype):
    import random_model

    c = random_model.normalised_config(preset)
    numbers = {
        "dim": "hidden_dim",
        "ffn": "ffn_dim",
        "heads": "n_heads",
        "kv": "n_kv_heads",
        "head_dim": "head_dim",
        "vocab": "vocab_size",
    }
    # bfloat16 matrices become float16 on the device (src/cuda/as_fp16.cu).
    return [
        f"name={preset}",
        f"dtype={'fp16' if dtype == 'bf16' else dtype}",
        *(f"{key}={c[value]}" for key, value in numbers.items()),
    ], c


def bench_kernels(check):
    check.found["kernels"] = []
    for preset, dtype in check.models:
        words, _ = shape_arguments(preset, dtype)
        lists = [f"depths={','.join(map(str, check.depths))}", f"prompts={','.join(map(str, check.prompts))}"]
        done = check.run(f"kernels-{preset}", [check.programs / "bench/cuda_kernels", *words, *lists])
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        check.found["limits"] = rows[0]["limits"]
        check.found["kernels"] += rows[1:]


def throughput(check, model, name, *words):
    done = check.run(name, [check.yalm, model, "-m", "throughput", "-d", "cuda", "-o", "json", "-q", *words])
    return json.loads(done.stdout)


def bench_models(check):
    check.found["models"] = []
    for preset, dtype in check.models:
        model = check.out / f"{preset}-{dtype}.bin"
        if not model.exists():
            raise StepError(f"{model.name} was not made")
        prompts, depths = ",".join(map(str, check.prompts)), ",".join(map(str, check.depths))
        repetitions = 1 if check.options.emulated else 3
        rows = throughput(check, model, f"prefill-{preset}", "-p", prompts, "-n", 0, "-r", repetitions)
        rows += throughput(
            check,
            model,
            f"decode-{preset}",
            "-p",
            0,
            "-n",
            check.generated,
            "-r",
            repetitions,
            "--depth",
            depths,
            "--fill-depth",
            "random",
        )
        check.found["models"] += [dict(row, preset=preset, dtype=dtype) for row in rows]


def time_start(check):
    """From the start of the process to the first token, the model's file in the page cache."""
    preset, dtype = check.models[-1]
    model = check.out / f"{preset}-{dtype}.bin"
    (check.out / "ids.txt").write_text("1 2 3 4 5", encoding="ascii")
    times = []
    for _ in range(1 if check.options.emulated else 3):
        begin = time.monotonic()
        check.run("start", [check.yalm, model, "-d", "cuda", "--tokens", check.out / "ids.txt", "-n", "1", "-q"])
        times.append(time.monotonic() - begin)
    check.found["start"] = {"model": model.name, "bytes": model.stat().st_size, "seconds": times}


# ------------------------------------------------------------------------------------------- report


def step_gap(check, preset, depth):
    """(seconds of a decode step, seconds of its kernels timed alone)."""
    rows = {
        (row["kernel"], row["length"]): row["seconds"]
        for row in check.found.get("kernels", [])
        if row["model"] == preset and row["phase"] == "decode"
    }
    steps = [
        row["avg_ns"] / 1e9 / row["n_gen"]
        for row in check.found.get("models", [])
        if row["preset"] == preset and row["n_gen"] and row["n_depth"] == depth
    ]
    if not rows or not steps:
        return None
    _, config = shape_arguments(preset, "fp16")
    layer = sum(rows[name, 1] for name in ("qkv", "rope-append", "o", "gate-up", "down")) + rows["attention", depth]
    return steps[0], layer * config["n_layers"] + rows["classifier", 1]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def markdown(check):
    found, machine = check.found, check.found.get("machine", {})
    gpu = machine.get("gpu", {})
    where = (
        "the emulator, on the CPU: its times mean nothing"
        if found["emulated"]
        else f"{gpu.get('name', 'unknown GPU')}, driver {gpu.get('driver_version')}"
    )
    text = [
        f"# gpu-check: {where}\n",
        f"{machine.get('date')}, commit {machine.get('commit')}, nvcc {machine.get('nvcc')}\n",
    ]
    text.append(
        table(["step", "result", "seconds"], [(s["name"], s["result"], f"{s['seconds']:.1f}") for s in found["steps"]])
    )
    if "limits" in found:
        limits = found["limits"]
        text.append("Limits: " + ", ".join(f"{key} {value:.0f}" for key, value in limits.items()) + "\n")
    if found.get("models"):
        rows = []
        for row in found["models"]:
            test = f"tg{row['n_gen']} @ {row['n_depth']}" if row["n_gen"] else f"pp{row['n_prompt']}"
            gap = step_gap(check, row["preset"], row["n_depth"]) if row["n_gen"] else None
            rows.append(
                (
                    f"{row['preset']} {row['dtype']}",
                    test,
                    f"{row['avg_ts']:.1f} ± {row['stddev_ts']:.1f}",
                    f"{row['gb_per_s']:.0f}",
                    f"{row['gop_per_s']:.0f}",
                    f"{100 * row['fraction_of_limit']:.1f} %",
                    f"{100 * (1 - gap[1] / gap[0]):.1f} %" if gap else "",
                )
            )
        text.append(table(["model", "test", "tok/s", "GB/s", "GOP/s", "of limit", "step not in kernels"], rows))
    if "start" in found:
        text.append(
            f"From process start to first token of {found['start']['model']}: "
            + ", ".join(f"{s:.2f}" for s in found["start"]["seconds"])
            + " s\n"
        )
    if found.get("kernels"):
        rows = [
            (
                row["model"],
                row["phase"],
                row["kernel"],
                row["length"],
                f"{1e6 * row['seconds']:.1f}",
                f"{row['bytes'] / 1e6:.2f}",
                f"{row['gb_per_s']:.0f}",
                f"{100 * row['of_read']:.0f} %",
                f"{row['gop_per_s']:.0f}",
                f"{100 * row['of_matrix']:.0f} %",
            )
            for row in found["kernels"]
        ]
        text.append(
            table(["model", "phase", "kernel", "length", "µs", "MB", "GB/s", "of read", "GOP/s", "of matrix"], rows)
        )
    return "\n".join(text)


# ------------------------------------------------------------------------------------------- main

# (name, what it does, seconds at most), in this order.
STEPS = [
    ("machine", look_at_machine, 60),
    ("build", build, 240),
    ("kernel-tests", test_kernels, 90),
    ("model-tests", test_models, 150),
    ("models", make_models, 90),
    ("bench-kernels", bench_kernels, 60),
    ("bench-models", bench_models, 150),
    ("start", time_start, 60),
    ("sanitizer", sanitize, 150),
]


def run_step(check, name, work, seconds):
    began = time.monotonic()
    check.step_ends = began + seconds * (20 if check.options.emulated else 1)
    result = "ok"
    try:
        if began > check.ends:
            raise Skipped("no time left")
        work(check)
    except Skipped as why:
        result = f"skipped: {why}"
    except StepError as why:
        result = f"FAILED: {why}"
    except Exception as why:  # a fault of this program's: the next steps still run
        result = f"FAILED: {type(why).__name__}: {why}"
    check.found["steps"].append({"name": name, "result": result, "seconds": time.monotonic() - began})
    print(f"{name:14} {result} ({time.monotonic() - began:.1f} s)", flush=True)
    # After every step, so that a run that is killed leaves what it found.
    (check.out / "gpu-check.json").write_text(json.dumps(check.found, indent=1) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default=str(ROOT / "build/gpu-check"))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--only", default="", help="steps, comma between")
    parser.add_argument("--skip", default="", help="steps, comma between")
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--keep", action="store_true", help="leave the models in the output folder")
    options = parser.parse_args()
    names = [name for name, _, _ in STEPS]
    only, skip = ([word for word in text.split(",") if word] for text in (options.only, options.skip))
    unknown = [word for word in [*only, *skip] if word not in names]
    if unknown:
        parser.error(f"no step '{unknown[0]}': expected some of {', '.join(names)}")
    check = Check(options)
    for name, work, seconds in STEPS:
        if name == "machine" or ((not only or name in only) and name not in skip):
            run_step(check, name, work, seconds)
    (check.out / "gpu-check.md").write_text(markdown(check), encoding="utf-8")
    if not options.keep:
        for path in check.out.glob("*.bin"):
            path.unlink()
    print(f"see {check.out / 'gpu-check.md'}")
    return 1 if any(step["result"].startswith("FAILED") for step in check.found["steps"]) else 0


if __name__ == "__main__":
    sys.exit(main())
