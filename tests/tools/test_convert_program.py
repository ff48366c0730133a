"""tools/convert.py as a program: what it prints, what it leaves behind, its memory, and how it ends when it is stopped."""

import os
import resource
import signal
import subprocess
import sys
import time

import hf
import pytest
from harness import HANG, ROOT, THOROUGH
from read_model import read_model
from read_types import FormatError
from yalm_convert import writer

USAGE = 2


def test_dry_run_writes_nothing(tiny, tmp_path, monkeypatch, capsys):
    arguments = (tiny("tiny-gqa"), "-o", tmp_path / "model.bin", "--dry-run", "--dtype", "fp16")
    code, out, _ = hf.call(monkeypatch, capsys, *arguments)
    assert code == 0 and os.listdir(tmp_path) == []
    hf.call(monkeypatch, capsys, *arguments[:3], "--dtype", "fp16")
    tensors = read_model(tmp_path / "model.bin")[1]
    for entry, _ in tensors.values():
        shape = " x ".join(map(str, entry["shape"]))
        line = f"{entry['offset']:>14} {entry['length']:>12}  {entry['dtype']:<8}  {entry['name']:<32} {shape}"
        assert line in out.splitlines()
    assert f"{len(tensors)} tensors, {(tmp_path / 'model.bin').stat().st_size} bytes" in out and "MiB" in out


def test_dry_run_says_what_calibration_takes(tiny, tmp_path, monkeypatch, capsys):
    arguments = (tiny("tiny-gqa"), "-o", tmp_path / "model.bin", "--dry-run", "--dtype", "q4")
    said = "calibration: yalm adds up second moments in 2 MiB"
    text = ROOT / "tools/yalm_convert/calibration.txt"
    assert said in hf.call(monkeypatch, capsys, *arguments, "--calibration", text)[1]
    assert said not in hf.call(monkeypatch, capsys, *arguments, "--calibration", "none")[1]


def test_an_existing_file_is_replaced_with_usual_rights(tiny, tmp_path):
    output = tmp_path / "model.bin"
    output.write_text("old")
    done = hf.run(tiny("tiny-gqa"), "--output", output)
    assert done.returncode == 0 and done.stdout == "" and "\r" not in done.stderr
    read_model(output)
    umask = os.umask(0)
    os.umask(umask)
    output.unlink()
    assert hf.run(tiny("tiny-gqa"), output).returncode == 0
    assert output.stat().st_mode & 0o777 == 0o666 & ~umask


def test_it_reads_back_what_it_wrote(tiny, tmp_path, monkeypatch, capsys):
    """A disk that returns something else than it was given is found out."""
    directory, output, verify = tiny("tiny-gqa"), tmp_path / "model.bin", writer.verify

    def damaged(temporary, *arguments):
        data = bytearray(temporary.read_bytes())
        data[-1] ^= 1
        temporary.write_bytes(data)
        verify(temporary, *arguments)

    monkeypatch.setattr(writer, "verify", damaged)
    code, _, err = hf.call(monkeypatch, capsys, directory, output)
    assert code == 1 and "tensor 'norm' reads back otherwise than it was written" in err
    assert os.listdir(tmp_path) == []


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """About 220 MB, the largest tensor 32 MB."""
    out = tmp_path_factory.mktemp("large") / "model"
    return hf.make("tinyllama-1.1b", out, "--layers", "2", "--vocab", "8000")


def test_memory_stays_small(large, tmp_path):
    """Less than the file, and what --dry-run promises."""
    program = (
        "import resource, runpy, sys; sys.argv = sys.argv[1:]\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    for dtype in ("bf16", "fp16", "fp32") if THOROUGH else ("fp32",):
        output = tmp_path / "model.bin"
        environment = dict(os.environ, PYTHONPATH=str(hf.CONVERT.parent))
        command = [sys.executable, "-c", program, str(hf.CONVERT), str(large), str(output), "--dtype", dtype]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) * 1024 < hf.convert_module.PEAK_MEMORY < output.stat().st_size


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruption_leaves_nothing(number, code, large, tmp_path):
    output = tmp_path / "model.bin"
    output.write_text("old")
    command = [sys.executable, str(hf.CONVERT), str(large), str(output), "--dtype", "fp32"]

    def heard():  # a shell's background jobs ignore ^C, and so do their children
        signal.signal(number, signal.SIG_DFL)

    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    while process.poll() is None and not list(tmp_path.glob(".model.bin.*.tmp")):
        time.sleep(0.002)
    process.send_signal(number)
    err = process.communicate(timeout=HANG)[1]
    assert process.returncode == code, err
    assert "interrupted; nothing was written" in err
    assert os.listdir(tmp_path) == ["model.bin"] and output.read_text() == "old"


def test_a_full_disk_leaves_nothing(large, tmp_path):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50 << 20, 50 << 20))

    done = hf.run(large, tmp_path / "model.bin", preexec_fn=limit)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert lines == [f"convert.py: {tmp_path / 'model.bin'}: File too large"]
    assert os.listdir(tmp_path) == []


def test_no_space_is_said_before_writing(tiny, tmp_path, monkeypatch, capsys):
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr(hf.convert_module.shutil, "disk_usage", lambda _: usage)
    code, _, err = hf.call(monkeypatch, capsys, tiny("tiny-gqa"), tmp_path / "model.bin")
    assert code == 1 and "bytes are needed, 1000 are free" in err and os.listdir(tmp_path) == []


def test_the_reader_of_these_tests_is_strict(tiny, tmp_path, convert):
    convert(tiny("tiny-gqa"))
    good = (tmp_path / "model.bin").read_bytes()
    for at in (0, 8, 16, 40, 56, 200, len(good) - 1):
        (tmp_path / "bad.bin").write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(FormatError):
            read_model(tmp_path / "bad.bin")


# ------------------------------------------------------------------------------------ usage


def test_usage(tiny, tmp_path, monkeypatch, capsys):
    model = tiny("tiny-gqa")
    (tmp_path / "not-a-directory").write_text("")
    monkeypatch.chdir(tmp_path)
    for arguments, text in [
        ([], "the following arguments are required: MODEL"),
        ([model], "give the file to write"),
        ([model, "a.bin", "-o", "b.bin"], "given twice"),
        ([tmp_path / "absent", "a.bin"], "no such directory"),
        ([model, tmp_path], "a directory, expected a file to write"),
        ([model, tmp_path / "absent" / "a.bin"], "there is no such directory to write in"),
        ([model, "/dev/null"], "not a file"),
        ([model, "a.bin", "--dtype", "int8"], "invalid choice: 'int8'"),
        ([model, "a.bin", "--no-such-option"], "unrecognized arguments"),
    ]:
        code, out, err = hf.call(monkeypatch, capsys, *arguments)
        assert code == USAGE and out == "" and text in err, err
        assert err.startswith("convert.py: ") and err.count("\n") == 1
    assert os.listdir(tmp_path) == ["not-a-directory"]


def test_the_source_is_not_overwritten(tiny, monkeypatch, capsys, tmp_path):
    model = hf.copy(tiny("tiny-gqa"), tmp_path / "model")
    (tmp_path / "link.bin").symlink_to(model / "model.safetensors")
    os.link(model / "config.json", tmp_path / "hard.bin")
    for output in (model / "model.safetensors", model / "config.json", tmp_path / "link.bin", tmp_path / "hard.bin"):
        before = output.read_bytes()
        code, _, err = hf.call(monkeypatch, capsys, model, output)
        assert code == USAGE and "one of the model's own files" in err and output.read_bytes() == before
    for _ in range(2):  # a model file beside the source is no source
        assert hf.call(monkeypatch, capsys, model, model / "model.bin")[0] == 0
    assert not list(model.glob(".*"))


def test_a_directory_that_cannot_be_written(tiny, tmp_path, monkeypatch, capsys):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", str(tmp_path / ".model.bin.1.tmp"))

    monkeypatch.setattr("yalm_convert.writer.open", refuse, raising=False)
    code, _, err = hf.call(monkeypatch, capsys, tiny("tiny-gqa"), tmp_path / "model.bin")
    assert code == 1 and "Permission denied" in err


def test_out_of_memory(tiny, tmp_path, monkeypatch, capsys):
    def exhausted(*_):
        raise MemoryError

    monkeypatch.setattr("yalm_convert.plan.pieces", exhausted)
    code, _, err = hf.call(monkeypatch, capsys, tiny("tiny-gqa"), tmp_path / "model.bin")
    assert code == 4 and err.splitlines()[-1] == "convert.py: out of memory" and os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["numpy", "gguf"])  # the first is loaded at once, the other where it is used
def test_without_its_packages(tmp_path, name):
    (tmp_path / f"{name}.py").write_text(f"raise ImportError('no {name}')")
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    done = hf.run(tmp_path / "x.gguf", tmp_path / "y", env={"PYTHONPATH": str(tmp_path)})
    line = f"convert.py: no {name}; this installs what is missing: {ROOT}/tools/setup.sh build"
    assert done.returncode == 1 and done.stderr == f"{line}\n"
