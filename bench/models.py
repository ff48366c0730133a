"""Models of real shapes with random weights, to time: made, converted, and removed again."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from random_hf_model import PRESETS, tensor_shapes  # noqa: E402

# Bits a weight, scales and headers included; norms and biases do not count beside them.
BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "bf12": 12.25, "fp8": 8, "q8": 8.5, "q6": 6.25, "q5": 5.25, "q4": 4.5}
SOURCE_BITS = 16  # directories are made in bf16


class BenchError(Exception):
    """One line for the user."""


def n_weights(shape, layers=None):
    config = dict(PRESETS[shape])
    if layers:
        config["num_hidden_layers"] = layers
    total = 0
    for sizes in tensor_shapes(config).values():
        product = 1
        for size in sizes:
            product *= size
        total += product
    return total


def model_bytes(shape, dtype, layers=None):
    return int(n_weights(shape, layers) * BITS[dtype] / 8)


def cache_bytes(shape, positions, layers=None):
    """Bytes of an fp16 cache."""
    config = PRESETS[shape]
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return 4 * (layers or config["num_hidden_layers"]) * config["num_key_value_heads"] * head_dim * positions


def gib(n_bytes):
    return f"{n_bytes / 2**30:.1f} GiB"


def check_room(folder, disk, memory):
    """States what a run takes, and refuses where that is not there."""
    free = shutil.disk_usage(folder).free
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    print(
        f"bench: takes {gib(disk)} of disk under {folder} ({gib(free)} free) and {gib(memory)} of memory "
        f"({gib(available)} available)",
        file=sys.stderr,
    )
    if disk > free:
        raise BenchError(f"{folder}: needs {gib(disk)} of disk, and {gib(free)} are free")
    if memory > available:
        raise BenchError(f"needs {gib(memory)} of memory, and {gib(available)} are available")


@contextlib.contextmanager
def cleaned(folder, keep):
    """Removes from the folder whatever came while this lasted, however it ends. With `keep` only what was not finished
    goes: temporary files, and directories, from which models are only converted."""
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    try:
        yield
    finally:
        for path in set(folder.iterdir()) - before:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif not keep or path.suffix == ".tmp":
                path.unlink(missing_ok=True)


def run_tool(command):
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"{Path(command[1]).name} exits with {done.returncode}"]
        raise BenchError(lines[-1])


def model_name(shape, layers=None):
    return f"{shape}-{layers}-layers" if layers else shape


def make_directory(folder, shape, layers=None):
    """A Hugging Face directory of the shape in bf16; its path."""
    out = folder / model_name(shape, layers)
    more = ["--layers", layers] if layers else []
    run_tool([sys.executable, ROOT / "tools/random_hf_model.py", shape, out, *more])
    return out


def convert(directory, dtype, out):
    run_tool([sys.executable, ROOT / "tools/convert.py", directory, out, *(["--dtype", dtype] if dtype else [])])
    return out


def make_models(folder, shape, dtypes, layers=None):
    """The shape in each dtype: {dtype: path}. What exists already is used again."""
    name = model_name(shape, layers)
    models = {dtype: folder / f"{name}-{dtype}.bin" for dtype in dtypes}
    missing = [dtype for dtype in dtypes if not models[dtype].exists()]
    if not missing:
        return models
    print(f"bench: making {name} in {', '.join(missing)}", file=sys.stderr)
    directory = folder / name
    try:
        make_directory(folder, shape, layers)
        for dtype in missing:
            convert(directory, dtype, models[dtype])
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return models
