"""Mode importance: the file that it writes, as the converter and the safetensors library read it, and what it refuses."""

import json
import resource
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from harness import HANG, ROOT, convert_directory
from safetensors.numpy import load_file

sys.path.insert(0, str(ROOT / "tools"))

import random_hf_model
from yalm_convert import calibrate

HELDOUT = ROOT / "models/fable-4m/heldout.txt"
PARTS = ("q", "k", "v", "o", "gate", "up", "down")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes(HELDOUT.read_bytes()[:9000])
    return path


def write(program, text, path, *options):
    program.ok("-m", "importance", "-f", text, "-o", path, "--ctx", "128", *options)
    return path


def size_behind_table(path):
    with open(path, "rb") as file:
        return path.stat().st_size - 8 - int.from_bytes(file.read(8), "little")


def size_of_sums(model):
    """As the converter foretells it, of a model file's tensors."""
    with open(model, "rb") as file:
        head = file.read(64)
        metadata = json.loads(file.read(int.from_bytes(head[32:40], "little")))
    return calibrate.size_of_sums([types.SimpleNamespace(**tensor) for tensor in metadata["tensors"]])


def checksum_of(model):
    return calibrate.model_checksum(Path(model).read_bytes()[:64])


def test_writes_what_each_matrix_reads(program, text, tmp_path):
    path = write(program, text, tmp_path / "a.importance")
    assert [file.name for file in tmp_path.iterdir()] == ["a.importance"]
    tensors = load_file(path)  # which checks the header
    assert size_of_sums(program.model) == size_behind_table(path)
    names = {f"layers.{layer}.{part}" for layer in range(4) for part in PARTS} | {"embedding"}
    inputs = {f"input.{5 * layer + which}" for layer in range(4) for which in range(4)} | {"input.20"}
    assert set(tensors) == names | {f"{name}.tokens" for name in names} | inputs
    tokens = tensors["layers.0.q.tokens"][0]
    assert tokens > 1000 and all(tensors[f"{name}.tokens"][0] == tokens for name in names)
    found = calibrate.read(path, checksum_of(program.model))
    for name in names:
        squares, products = found[name].squares, np.asarray(found[name].products)
        assert np.allclose(squares, tensors[name] / tokens) and (squares > 0).all()
        assert np.allclose(products.diagonal(), tensors[name], rtol=1e-4) and (np.triu(products, 1) == 0).all()
        lower = products.astype(np.float64)
        moments = lower + np.tril(lower, -1).T
        assert np.linalg.eigvalsh(moments).min() > -1e-4 * np.linalg.eigvalsh(moments).max()
        assert np.abs(np.tril(lower, -1)).max() > 0
    for layer in range(4):
        assert (tensors[f"layers.{layer}.q"] == tensors[f"layers.{layer}.v"]).all()
        assert (tensors[f"layers.{layer}.gate"] == tensors[f"layers.{layer}.up"]).all()


@pytest.mark.parametrize("columns", [31, 2048, 2049, 2144, 8960, 11008])
def test_blocks_are_whole_groups(columns):
    """As src/model/importance.h has them."""
    expected = {31: 31, 2048: 2048, 2049: 704, 2144: 736, 8960: 1024, 11008: 1024}
    assert calibrate.block_of(columns) == expected[columns]


def test_each_expert_has_its_own_tokens(yalm, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["random_hf_model.py", "tiny-mixtral", str(tmp_path / "tiny")])
    random_hf_model.main()
    model = convert_directory(tmp_path / "tiny", tmp_path / "tiny.bin")
    facts = json.loads((tmp_path / "tiny/config.json").read_text())
    (tmp_path / "ids").write_text(" ".join(str(i * 7 % 100) for i in range(300)))
    path = tmp_path / "i"
    command = [yalm, model, "-m", "importance", "--tokens", tmp_path / "ids", "-o", path, "--ctx", "64", "-q"]
    subprocess.run(command, check=True, capture_output=True)
    tensors = load_file(path)
    for layer in range(facts["num_hidden_layers"]):
        experts = [f"layers.{layer}.experts.{e}" for e in range(facts["num_local_experts"])]
        counts = [int(tensors[f"{expert}.down.tokens"][0]) for expert in experts]
        assert sum(counts) == 300 * facts["num_experts_per_tok"] and max(counts) < 300
        assert [int(tensors[f"{expert}.gate.tokens"][0]) for expert in experts] == counts
        assert all(f"input.{tensors[f'{expert}.down.tokens'][1]}" not in tensors for expert in experts)
        assert not np.allclose(tensors[f"{experts[0]}.up"], tensors[f"{experts[1]}.up"])
        assert f"layers.{layer}.gate" not in tensors
    assert size_of_sums(model) == size_behind_table(path)


def test_same_on_any_number_of_threads(program, text, tmp_path):
    one, three = (write(program, text, tmp_path / n, "--threads", n) for n in "13")
    assert one.read_bytes() == three.read_bytes()


def test_damage_is_seen(program, text, tmp_path):
    path = write(program, text, tmp_path / "a")
    data, model = path.read_bytes(), checksum_of(program.model)
    with pytest.raises(calibrate.Failed, match="importance of another model"):
        calibrate.read(path, "0" * 16)
    damaged = bytearray(data)
    damaged[-5] ^= 1
    for bad in (
        bytes(damaged),
        data[:-8],
        data[:1000],
        data[:4],
        b"",
        data[:8] + b"[" + data[9:],
        json.dumps({}).encode(),
    ):
        path.write_bytes(bad)
        with pytest.raises(calibrate.Failed, match=r"damaged|not a file of importance"):
            calibrate.read(path, model)


@pytest.mark.parametrize(
    "args, code, message",
    [
        (("-i", "x"), 2, "mode importance writes a file: -o FILE"),
        (("-o", "a"), 2, "mode importance needs input"),
        (("-f", HELDOUT, "-o", "/nonexistent/a"), 1, "/nonexistent/a: No such file or directory"),
        (("-f", HELDOUT, "-o", HELDOUT), 1, "holds no importance; it is not replaced"),
        (("-i", "", "-o", "a"), 2, "the calibration text: found no tokens"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_refusals(program, args, code, message):
    assert message in program.fails(code, "-m", "importance", *args)


def test_a_full_disk_is_said_before_the_text_is_read(program, yalm, tmp_path):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    command = [yalm, program.model, "-m", "importance", "-f", HELDOUT, "-o", tmp_path / "a", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, timeout=HANG)
    needed = size_of_sums(program.model)
    assert done.returncode == 1
    assert done.stderr == f"yalm: {tmp_path / 'a'}: {needed} bytes are needed: File too large\n"
    assert list(tmp_path.iterdir()) == []


def test_replaces_its_own(program, text, tmp_path):
    path = write(program, text, tmp_path / "a")
    before = path.read_bytes()
    assert write(program, text, path).read_bytes() == before
