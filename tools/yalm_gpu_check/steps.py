"""What gpu_check.py does, in this order. A step is a function of the run's state; it returns what becomes of it, or raises."""

from __future__ import annotations

import concurrent.futures
import datetime
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from .check import ROOT, Skipped, StepError
from .measuring import (
    bench_attention,
    bench_first,
    bench_kernels,
    bench_ladders,
    bench_long,
    bench_quantised,
    bench_second,
    make_model,
)

DEPS = ROOT / "build/gpu-deps"

SANITIZED_CONTEXT = 512
# (name, preset, dtype, options) of the runs under compute-sanitizer; and whether racecheck and initcheck, which are
# slow, are run too.
SANITIZED = [
    ("window", "tiny-window", "fp16", [], True),
    ("experts", "tiny-mixtral", "fp16", [], True),
    ("q8", "tiny-gqa", "q8", [], False),
    ("q4", "tiny-gqa", "q4", [], True),
    ("fp8", "tiny-gqa", "fp8", [], False),
    ("int8 cache", "tiny-gqa", "fp16", ["--kv", "int8"], True),
    ("sparq", "tiny-gqa", "fp16", ["--attention", "sparq", "--set", "sparq.from=8", "--set", "sparq.min_k=8"], True),
    (
        "hybrid",
        "tiny-gqa",
        "fp16",
        ["--attention", "hybrid", "--set", "hybrid.from=8", "--set", "hybrid.min_k=8"],
        True,
    ),
]
SANITIZED_TESTS = ("test_attention_prefill", "test_experts", "test_quant", "test_selective")


# ------------------------------------------------------------------------------------------- machine and build


def read_command(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def find_nvcc():
    return shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def look_at_machine(check):
    fields = "name,driver_version,memory.total,compute_cap,clocks.max.sm,clocks.max.mem,power.limit"
    gpu = read_command("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader").splitlines()[:1]
    version = re.search(r"release (\S+),", read_command(find_nvcc(), "--version"))
    check.found["machine"] = {
        "gpu": dict(zip(fields.split(","), (value.strip() for value in gpu[0].split(",")))) if gpu else {},
        "nvcc": version[1] if version else "",
        "cores": len(os.sched_getaffinity(0)),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": read_command("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"),
    }
    if not gpu and not check.emulated:
        raise StepError("nvidia-smi finds no GPU")


def prepend(check, name, folder):
    before = check.environment.get(name)
    check.environment[name] = f"{folder}{os.pathsep + before if before else ''}"


def use_folder(check, folder):
    """Headers and libraries of folder/include and folder/lib."""
    for name, part in (("CPATH", "include"), ("LIBRARY_PATH", "lib"), ("LD_LIBRARY_PATH", "lib")):
        if (folder / part).is_dir():
            prepend(check, name, folder / part)


def use_pythons_cublas(check):
    """Where the toolkit has no cuBLASLt but Python's packages bring it, a folder with links to theirs."""
    toolkit = Path(find_nvcc()).resolve().parents[1]
    if any((folder / "cublasLt.h").exists() for folder in (toolkit / "include", Path("/usr/include"))):
        return
    for site in map(Path, sys.path):
        header = next(iter(sorted(site.glob("nvidia/*/include/cublasLt.h"))), None)
        library = next(iter(sorted(site.glob("nvidia/*/lib/libcublasLt.so.*"))), None)
        if header and library:
            folder = check.out / "cublas"
            (folder / "lib").mkdir(parents=True, exist_ok=True)
            for link, to in ((folder / "include", header.parent), (folder / "lib/libcublasLt.so", library)):
                link.unlink(missing_ok=True)
                link.symlink_to(to)
            use_folder(check, folder)
            prepend(check, "LD_LIBRARY_PATH", library.parent)
            return


def make_words(check):
    if DEPS.is_dir():
        use_folder(check, DEPS)
    words = ["make", f"-j{len(os.sched_getaffinity(0))}"]
    if check.emulated:
        return [*words, "VARIANT=emulated"]
    use_pythons_cublas(check)
    nvcc = Path(find_nvcc())
    if not shutil.which("nvcc") and nvcc.exists():
        check.environment["PATH"] += f"{os.pathsep}{nvcc.parent}"
    gpu = check.found.get("machine", {}).get("gpu", {})
    arch = check.options.arch or gpu.get("compute_cap", "").replace(".", "")
    return [*words, f"CUDA_ARCHS={arch}"] if arch else words


def build(check):
    """Builds what all else needs. A test that does not compile must not leave us without a program."""
    more = [check.build / "bench/random_model"]
    if check.emulated:
        check.run("build", [*make_words(check), "all", *(path.relative_to(ROOT) for path in more)])
    else:
        check.run("build", [*make_words(check), "cpu", "cuda", *(path.relative_to(ROOT) for path in more)])


def build_programs(check):
    benches = sorted(ROOT.glob("bench/cuda_*.cu"))
    if check.emulated:
        few = ("tests/cuda/compare_devices", "tests/cuda/test_elementwise", "tests/cuda/test_ladder")
        targets = [f"build/emulated/{name}" for name in few]
        targets += [f"build/emulated/bench/{path.stem}" for path in benches]
    else:
        targets = ["cuda-check-programs"]
    done = check.try_run("build-programs", [*make_words(check), "-k", *targets])
    if done.status is None:
        raise StepError(f"no end after {done.seconds:.0f} s: not all programs are there")
    if done.status != 0:
        targets = re.findall(r"make.*\[[^\]]*: (?:\S*/)?([\w.]+)\] Error", done.stderr)
        raise StepError(f"not built: {', '.join(targets) or 'see logs/build-programs.err'}")


# ------------------------------------------------------------------------------------------- tests


def count_cmocka(text):
    return len(re.findall(r"^\[       OK \]", text, re.M)), len(set(re.findall(r"^\[  FAILED  \] (\w+)", text, re.M)))


def test_kernels(check):
    results = check.found["kernel_tests"] = {}

    def run(program):
        done = check.try_run(program.name, [program], limit=60)
        passed, failed = count_cmocka(done.stdout + done.stderr)
        return program.name, {"passed": passed, "failed": max(failed, int(done.status != 0))}

    programs = [
        path
        for path in sorted((check.programs / "tests").rglob("test_*"))
        if not path.suffix and os.access(path, os.X_OK) and "emulator" not in path.name and path.is_file()
    ]
    if check.emulated:
        programs = [path for path in programs if path.name in ("test_elementwise", "test_ladder")]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results.update(pool.map(run, programs))
    wrong = [name for name, result in results.items() if result["failed"]]
    if wrong or not results:
        raise StepError("failed: " + ", ".join(wrong) if wrong else "no test program was built")


def test_models(check):
    """The device beside the CPU on every model of the parity tests."""
    report = check.out / "models.xml"
    report.unlink(missing_ok=True)
    words = [sys.executable, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}"]
    if check.emulated:
        words += ["-k", "tiny-oddvocab"]
    elif importlib.util.find_spec("xdist"):
        words += ["-n", str(max(4, len(os.sched_getaffinity(0)) // 2))]
    environment = {"YALM_VARIANT": "emulated" if check.emulated else "release"}
    done = check.try_run(
        "models", [*words, "tests/cuda/test_devices.py", "tests/cuda/test_sessions.py"], environment=environment
    )
    if not report.exists():
        ended = "did not run" if done.status is not None else f"did not end within {done.seconds:.0f} s"
        raise StepError(f"pytest {ended} (logs/models.*)")
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    tests, failed, skipped = (int(suite.get(key)) for key in ("tests", "failures", "skipped"))
    failed += int(suite.get("errors"))
    check.found["model_tests"] = {"passed": tests - failed - skipped, "failed": failed, "skipped": skipped}
    if done.status != 0 or skipped == tests:
        raise StepError(f"{failed} failed, {skipped} skipped (logs/models.out)")


# ------------------------------------------------------------------------------------------- compute-sanitizer


def sanitize_engine(check, tool, checker, case):
    """memcheck on some tokens together and some one by one; the others, which do not know what the library's kernels
    write, on single tokens alone."""
    name, preset, dtype, options, _ = case
    together = checker == "memcheck"
    ids = check.out / ("ids.txt" if together else "id.txt")
    model = make_model(check, preset, dtype, SANITIZED_CONTEXT)
    run = [check.yalm, model, "-d", "cuda", "--tokens", ids, "-n", "6" if together else "12", "--seed", "1", *options]
    return sanitize_one(check, tool, checker, name, run)


def sanitize_one(check, tool, checker, name, run):
    log = f"{checker}-{name.replace(' ', '-')}"
    done = check.try_run(log, [tool, "--tool", checker, "--error-exitcode", "9", *run], limit=120)
    said = done.stdout + done.stderr
    if "not supported" in said and "Device" in said:
        return "refuses this device"
    if "not run on the GPU" in said:
        return "not on the GPU"
    if done.status is None:
        return f"no end after {done.seconds:.0f} s"
    found = re.findall(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (.*)", said)
    if done.status == 0 and found:
        return found[-1]
    return f"FOUND: {found[-1] if found else f'exit status {done.status}'} (logs/{log}.*)"


def sanitize(check):
    """compute-sanitizer's tools on a few tokens of small models, of each kind of kernel one, and racecheck on tests
    of kernels that only batches run."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(tool).exists():
        raise Skipped("compute-sanitizer is not installed")
    (check.out / "ids.txt").write_text(" ".join(str(7 * i % 300) for i in range(60)), encoding="ascii")
    (check.out / "id.txt").write_text("7", encoding="ascii")
    cases = SANITIZED[:1] if check.emulated else SANITIZED
    jobs = [(checker, case) for checker in ("memcheck", "racecheck", "initcheck") for case in cases]
    jobs = [(checker, case) for checker, case in jobs if checker == "memcheck" or case[4]]
    for _, preset, dtype, _, _ in cases:
        make_model(check, preset, dtype, SANITIZED_CONTEXT)
    works = {f"{checker}: {case[0]}": (sanitize_engine, checker, case) for checker, case in jobs}
    for name in () if check.emulated else SANITIZED_TESTS:
        works[f"racecheck: {name}"] = (sanitize_one, "racecheck", name, [check.programs / "tests" / name])
    results = check.found["sanitizer"] = {}
    with concurrent.futures.ThreadPoolExecutor(max(4, len(os.sched_getaffinity(0)) // 2)) as pool:
        found = pool.map(lambda work: work[0](check, tool, *work[1:]), works.values())
        for name, result in zip(works, found):
            results[name] = result
    if all("refuses this device" in text for text in results.values()):
        raise Skipped("compute-sanitizer refuses this device")
    wrong = [name for name, text in results.items() if text.startswith(("FOUND", "no end"))]
    if wrong:
        raise StepError("; ".join(f"{name}: {results[name]}" for name in wrong))


# (name, what it does, its share of the ten minutes in seconds)
STEPS = [
    ("machine", look_at_machine, 10),
    ("build", build, 100),
    ("build-programs", build_programs, 60),
    ("kernel-tests", test_kernels, 40),
    ("kernels", bench_kernels, 35),
    ("ladders", bench_ladders, 20),
    ("llama", bench_first, 40),
    ("mistral", bench_second, 45),
    ("quantised", bench_quantised, 45),
    ("attention", bench_attention, 45),
    ("long", bench_long, 40),
    ("model-tests", test_models, 60),
    ("sanitizer", sanitize, 60),
]
