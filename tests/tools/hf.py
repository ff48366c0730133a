"""Small Hugging Face directories to convert, whole and broken, and the converter to run on them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness import HANG

ROOT = Path(__file__).resolve().parents[2]
CONVERT = ROOT / "tools" / "convert.py"
FABLE = ROOT / "models" / "fable-4m"
ITEM_SIZE = {"F32": 4, "F16": 2, "BF16": 2}
sys.path.insert(0, str(ROOT / "tools"))

import convert as convert_module  # noqa: E402
import random_hf_model  # noqa: E402


def make(preset, out, *options):
    """A directory of tools/random_hf_model.py's."""
    argv = sys.argv
    sys.argv = ["random_hf_model.py", preset, str(out), *options]
    try:
        random_hf_model.main()
    finally:
        sys.argv = argv
    return Path(out)


def edit_json(path, **changes):
    """Sets members; None sets null and ... removes one."""
    values = json.loads(path.read_text()) if path.exists() else {}
    values.update(changes)
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}))


def read_tensors(path):
    """{name: [dtype, shape, bytes]} of a safetensors file, or of all in a directory."""
    tensors = {}
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        data = file.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:start]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[name] = [entry["dtype"], entry["shape"], data[start + begin : start + end]]
    return tensors


def header_of(tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return header


def write_tensors(path, tensors, header=None, tail=b""):
    """A safetensors file; `header`, where given, is a lie: an object or JSON text."""
    header = header if header is not None else header_of(tensors)
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(t[2] for t in tensors.values()) + tail)


def copy(source, target):
    shutil.copytree(source, target)
    return target


def contents(tensors):
    """What read_model() gives, without the offsets, which lie elsewhere after longer metadata."""
    return {name: (entry["dtype"], entry["shape"], data) for name, (entry, data) in tensors.items()}


def run(*arguments, **options):
    """The converter as a user starts it."""
    environment = dict(os.environ, **options.pop("env", {}))
    command = [sys.executable, str(CONVERT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG, **options)


def call(monkeypatch, capsys, *arguments):
    """The same within this process, which is faster, and without calibration unless it is asked for: (exit code,
    stdout, stderr)."""
    if "--calibration" not in arguments:
        arguments = (*arguments, "--calibration", "none")
    monkeypatch.setattr(sys, "argv", ["convert.py", *map(str, arguments)])
    monkeypatch.setattr(convert_module.signal, "signal", lambda *_: None)
    capsys.readouterr()
    try:
        code = convert_module.main()
    except SystemExit as end:
        code = end.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err
