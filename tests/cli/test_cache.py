"""A directory or a GGUF file in the model's place: converted once, into the cache, whatever happens meanwhile."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import gguf
import hf
import pytest
from harness import HANG, ROOT, THOROUGH, wait_until
from yalm_convert.plan import MATRIX_TYPES

ASK = ("-i", "Once", "-n", "5", "--temp", "0")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original") / "fable"
    left_out = shutil.ignore_patterns("make", "reference", "heldout.txt")
    shutil.copytree(ROOT / "models/fable-4m", folder, ignore=left_out)
    return folder


@pytest.fixture
def source(original, tmp_path):
    shutil.copytree(original, tmp_path / "fable")
    return tmp_path / "fable"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/yalm"


def names(cache):
    """What is there. Notes of what copies were made of count where there is no copy."""
    there = sorted(path.name for path in cache.iterdir()) if cache.exists() else []
    return [name for name in there if name.replace(".origin", ".bin") == name or name[:16] + ".bin" not in there]


def said(done, code):
    """The one line of a failure."""
    assert (done.returncode, done.stdout) == (code, b""), done.stderr
    (line,) = [line for line in done.stderr.decode().splitlines() if line.startswith("yalm: ")]
    return line


def test_converted_once(bare, program, source, cache):
    first = bare(source, *ASK)
    assert first.returncode == 0, first.stderr
    assert f"{source}: is converted once, into {cache}" in first.stderr.decode()
    assert first.stdout == program.ok(*ASK)
    (name,) = names(cache)
    assert re.fullmatch(r"[0-9a-f]{16}\.bin", name)
    again = bare(source, *ASK)
    assert again.stdout == first.stdout and b"converted" not in again.stderr
    moved = source.rename(source.parent / "moved")
    assert b"converted" not in bare(moved, *ASK).stderr
    for mode in ("info", "verify"):
        assert bare(moved, "-m", mode).returncode == 0
    assert names(cache) == [name]


def test_quiet(bare, source, cache):
    done = bare(source, *ASK, "-q")
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_has_changed_is_converted_again(bare, source, cache, tmp_path, monkeypatch):
    """Another time of change, other bytes with the same one, another type, another converter."""
    runs = [bare(source, *ASK)]
    weights = source / "model.safetensors"
    before = weights.stat()
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    runs.append(bare(source, *ASK))
    with weights.open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-100, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    runs.append(bare(source, *ASK))
    runs.append(bare(source, *ASK, "--dtype", "q8"))
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    os.symlink(ROOT / ".venv", tmp_path / ".venv")
    with (tmp_path / "tools/yalm_convert/plan.py").open("a") as file:
        file.write("\n")
    monkeypatch.setenv("YALM_CONVERTER", str(tmp_path / "tools"))
    runs.append(bare(source, *ASK))
    assert [run.returncode for run in runs] == [0] * 5, runs[-1].stderr
    assert all(b"is converted once" in run.stderr for run in runs)
    told = [b"what it was before is removed from there" in run.stderr for run in runs]
    assert told == [False, True, True, False, True] and len(names(cache)) == 2
    assert b"q8" in bare(source, "-m", "info", "--dtype", "q8").stdout
    assert len(names(cache)) == 2


def test_a_damaged_file_is_made_again(bare, source, cache):
    bare(source, *ASK)
    (name,) = names(cache)
    for damage in (lambda data: data[:-1], lambda data: b"x" + data[1:], lambda data: data + b"x"):
        (cache / name).write_bytes(damage((cache / name).read_bytes()))
        done = bare(source, *ASK)
        assert done.returncode == 0 and b"is converted once" in done.stderr
    data = bytearray((cache / name).read_bytes())
    data[200] ^= 1  # of the metadata, whose checksum opening compares
    (cache / name).write_bytes(data)
    line = said(bare(source, *ASK, "-q"), 3)
    assert str(cache / name) in line and line.endswith(f"; yalm cache clear {name[:16]} lets it be converted again")
    assert bare("cache", "clear", name[:16]).returncode == 0
    assert bare(source, *ASK).returncode == 0


def test_two_at_once_convert_once(yalm, source, cache):
    command = [str(yalm), str(source), *ASK]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    ends = [run.communicate(timeout=HANG) for run in runs]
    assert [run.returncode for run in runs] == [0] * 3, ends
    assert sum(b"is converted once" in words for _, words in ends) == 1
    assert len({text for text, _ in ends}) == 1 and len(names(cache)) == 1


SLOW = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tools!r})
import convert
write = convert.write_model
def slow(*arguments):
    Path({sign!r}).touch()
    write(*arguments[:3], lambda n: time.sleep(0.2))
convert.write_model = slow
sys.exit(convert.main())
"""


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A converter that takes its time, in tmp_path/slow."""
    folder = tmp_path / "slow"
    folder.mkdir()
    sign = tmp_path / "begun"
    (folder / "convert.py").write_text(SLOW.format(tools=str(ROOT / "tools"), sign=str(sign)))
    os.symlink(ROOT / ".venv", tmp_path / ".venv")
    monkeypatch.setenv("YALM_CONVERTER", str(folder))
    return sign


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("whom", ["yalm", "group"])
def test_an_interrupt_leaves_nothing(yalm, source, cache, slow, number, whom):
    run = subprocess.Popen([str(yalm), str(source), *ASK], stdout=-1, stderr=-1, start_new_session=True)
    wait_until(slow.exists)
    time.sleep(0.3)
    os.killpg(run.pid, number) if whom == "group" else run.send_signal(number)
    text, words = run.communicate(timeout=HANG)
    assert run.returncode == 130 and text == b"", words
    assert b"yalm: interrupted; nothing was written" in words and b"Traceback" not in words
    assert names(cache) == []


@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4] if THOROUGH else [0.05, 0.15, 0.3])
def test_an_early_interrupt_is_silent(yalm, source, cache, seconds):
    """Before the converter's first line Python would answer. A lock that nobody holds may stay: the next one takes it."""
    run = subprocess.Popen([str(yalm), str(source), *ASK], stdout=-1, stderr=-1, start_new_session=True)
    time.sleep(seconds)
    os.killpg(run.pid, signal.SIGINT)
    _, words = run.communicate(timeout=HANG)
    assert run.returncode in (0, 130, -signal.SIGINT) and b"Traceback" not in words, words
    assert not any(name.endswith(".tmp") for name in names(cache))
    if any(name.endswith(".lock") for name in names(cache)):
        assert run.returncode == -signal.SIGINT  # before the program heeded signals
        subprocess.run([str(yalm), str(source), *ASK], check=True, capture_output=True, timeout=HANG)
        assert not any(name.endswith(".lock") for name in names(cache))


def test_a_closed_stderr(yalm, source, cache):
    shell = 'exec "$0" "$@" 2>&-'
    done = subprocess.run(
        ["sh", "-c", shell, str(yalm), str(source), *ASK], capture_output=True, timeout=HANG, check=False
    )
    assert done.returncode == 0 and done.stdout


def test_what_a_killed_converter_left_is_swept(yalm, bare, source, cache, slow, monkeypatch):
    run = subprocess.Popen([str(yalm), str(source), *ASK], stdout=-1, stderr=-1, start_new_session=True)
    wait_until(slow.exists)
    wait_until(lambda: any(name.endswith(".tmp") for name in names(cache)))
    busy = bare("cache", "clear")
    assert busy.stdout.decode() == f"{cache}: 0 models removed\n"  # one that is being made is left alone
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate(timeout=HANG)
    assert any(name.endswith(".tmp") for name in names(cache))
    assert bare(source, *ASK).returncode == 0
    assert [name[16:] for name in names(cache)] == [".bin"]


def test_listed_and_cleared(bare, source, cache):
    assert bare("cache").stdout.decode() == f"{cache}: 0 models, 0 B\n"
    bare(source, *ASK)
    bare(source, *ASK, "--dtype", "q8")
    one, two, last = bare("cache").stdout.decode().splitlines()
    assert {line.split()[3] for line in (one, two)} == {"bf16", "q8"} and one.endswith("  fable")
    assert last.startswith(f"{cache}: 2 models, ") and last.endswith("; yalm cache clear [ID…] removes them")
    (cache / "notes.txt").write_text("mine")
    assert bare("cache", "clear", one[:16]).stdout.decode() == f"{cache}: 1 model removed\n"
    assert "no model 'ffff'" in said(bare("cache", "clear", "ffff"), 2)
    assert "an ID is empty" in said(bare("cache", "clear", ""), 2)
    assert bare("cache", "clear").stdout.decode() == f"{cache}: 1 model removed\n"
    assert names(cache) == ["notes.txt"]
    assert "expected nothing, or clear" in said(bare("cache", "empty"), 2)


def test_stale_copies_are_listed_and_cleared(bare, source, cache):
    """Of a source that is gone or has changed, and one of which nothing is known; what a start would find stays."""
    other = source.parent / "other"
    shutil.copytree(source, other)
    (other / "config.json").write_text((other / "config.json").read_text() + " ")
    for model in (source, other):
        assert bare(model, *ASK).returncode == 0
    assert b"(stale" not in bare("cache").stdout
    (here,) = [line[:16] for line in bare("cache").stdout.decode().splitlines() if line.endswith("  other")]
    weights = source / "model.safetensors"
    os.utime(weights, (1, 1))
    assert f"(stale: {source} has changed, or the converter)" in bare("cache").stdout.decode()
    shutil.rmtree(source)
    assert f"(stale: {source} is gone)" in bare("cache").stdout.decode()
    shutil.copy(cache / f"{here}.bin", cache / ("f" * 16 + ".bin"))
    words = bare("cache").stdout.decode()
    assert words.count("(stale:") == 2 and "what it was made of is not known" in words
    assert "; yalm cache clear stale removes" in words
    assert bare("cache", "clear", "stale").stdout.decode() == f"{cache}: 2 models removed\n"
    assert names(cache) == [f"{here}.bin"] and b"converted" not in bare(other, *ASK).stderr
    assert bare("cache", "clear", "stale").stdout.decode() == f"{cache}: 0 models removed\n"


def test_the_converters_options(bare, program, source, cache, tmp_path):
    """Passed on as they are; each makes a copy of its own."""
    mixed = bare(source, *ASK, "--dtype", "q4", "--bits", "6", "--calibration", "none")
    assert b"q5/q6/q8" in mixed.stderr and b"calibrated" not in mixed.stderr, mixed.stderr
    told = bare(source, "-m", "info", "-v", "--keep", "layers.0.*=q8", "--keep=*.down=fp16", "--check-finite")
    types = dict(re.findall(r"^ *(layers\.[01]\.(?:down|gate))\s+(\w+)", told.stdout.decode(), flags=re.M))
    assert types == {
        "layers.0.gate": "q8", "layers.0.down": "fp16", "layers.1.gate": "bf16", "layers.1.down": "fp16"
    }, told.stdout.decode()  # fmt: skip
    assert len(names(cache)) == 2
    (source / "config.json").rename(tmp_path / "config.json")
    (source / "config.json").symlink_to(tmp_path / "config.json")
    assert "--follow-links allows it" in said(bare(source, *ASK, "-q"), 3)
    assert bare(source, *ASK, "-q", "--follow-links").returncode == 0
    assert "'--bits': needs --dtype q4" in program.fails(2, *ASK, "--bits", "6")
    assert "'--bits': expected a number from 2.25 to 8.5" in program.fails(2, *ASK, "--bits", "9", "--dtype", "q4")
    assert "--lora: " in program.fails(2, *ASK, "--lora", tmp_path)
    assert "no such directory" in said(bare(source, *ASK, "-q", "--lora", tmp_path / "none"), 2)
    assert "expected NAME=DTYPE" in said(bare(source, *ASK, "-q", "--keep", "down"), 2)


def test_an_adapter_that_has_changed(bare, source, cache, tmp_path):
    """What is in its folder counts, by whatever path it is named."""
    adapter, name = tmp_path / "adapter", "model.layers.0.self_attn.q_proj"
    adapter.mkdir()
    rows, columns = hf.read_tensors(source)[f"{name}.weight"][1]
    ids = []
    for rank in (2, 4):
        config = {"peft_type": "LORA", "r": rank, "lora_alpha": 6, "target_modules": ["q_proj"], "bias": "none"}
        (adapter / "adapter_config.json").write_text(json.dumps(config))
        parts = {"A": [rank, columns], "B": [rows, rank]}
        hf.write_tensors(
            adapter / "adapter_model.safetensors",
            {f"base_model.model.{name}.lora_{p}.weight": ["F32", s, bytes(4 * s[0] * s[1])] for p, s in parts.items()},
        )
        done = bare(source, *ASK, "--lora", "adapter", cwd=tmp_path)
        assert done.returncode == 0 and b"is converted once" in done.stderr, done.stderr
        ids += names(cache)
    assert len(set(ids)) == len(ids) == 2
    assert b"converted" not in bare(source, *ASK, "--lora", adapter).stderr


def test_places_that_cannot_be_written(bare, source, tmp_path):
    (tmp_path / "file").write_text("")
    for home in ("file", "file/below"):
        line = said(bare(source, *ASK, "-q", env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / home)}), 1)
        assert "Not a directory" in line and "XDG_CACHE_HOME=DIRECTORY" in line
    line = said(bare(source, *ASK, "-q", env={**os.environ, "XDG_CACHE_HOME": "", "HOME": ""}), 1)
    assert "neither XDG_CACHE_HOME nor HOME" in line
    line = said(bare(source, *ASK, "-q", env={**os.environ, "XDG_CACHE_HOME": "/proc/yalm"}), 1)
    assert "/proc/yalm" in line


def test_a_full_disk(bare, source, cache, tmp_path, monkeypatch):
    folder = tmp_path / "converter"
    folder.mkdir()
    (folder / "convert.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tools')!r})\nimport convert\n"
        "convert.shutil.disk_usage = lambda path: convert.shutil._ntuple_diskusage(9, 9, 9)\nsys.exit(convert.main())\n"
    )
    os.symlink(ROOT / ".venv", tmp_path / ".venv")
    monkeypatch.setenv("YALM_CONVERTER", str(folder))
    line = said(bare(source, *ASK, "-q"), 1)
    assert "bytes are needed, 9 are free; `yalm cache clear` empties the cache, XDG_CACHE_HOME names" in line
    assert names(cache) == []


def test_names_that_a_terminal_would_obey(bare, source, cache, tmp_path):
    path = tmp_path / "\x1b[31mred"
    shutil.copytree(source, path)
    done = bare(path, *ASK)
    assert done.returncode == 0 and b"\x1b" not in done.stderr and b"?[31mred: is converted once" in done.stderr
    assert b"\x1b" not in bare("cache").stdout
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in said(bare(tmp_path / "pipe", *ASK), 1)


def test_no_converter_and_no_python(bare, source, cache, tmp_path, yalm):
    line = said(bare(source, *ASK, env={**os.environ, "YALM_CONVERTER": str(tmp_path)}), 1)
    assert line.endswith(f"YALM_CONVERTER={tmp_path}: there is no convert.py in it")
    (tmp_path / "bin").mkdir()
    shutil.copy(yalm, tmp_path / "bin/yalm")
    environment = {key: value for key, value in os.environ.items() if key != "YALM_CONVERTER"}
    done = subprocess.run([tmp_path / "bin/yalm", source, *ASK], capture_output=True, env=environment)
    assert "`make install` puts it there, YALM_CONVERTER=FOLDER names another place" in said(done, 1)
    shutil.copytree(ROOT / "tools", tmp_path / "share/yalm", ignore=shutil.ignore_patterns("__pycache__", "*.sh"))
    environment["PATH"] = str(tmp_path / "bin")
    done = subprocess.run([tmp_path / "bin/yalm", source, *ASK, "-q"], capture_output=True, env=environment)
    assert "python3 is not here" in said(done, 1) and "apt-get install python3-venv" in said(done, 1)
    os.symlink(sys.base_prefix + "/bin/python3", tmp_path / "bin/python3")
    done = subprocess.run([tmp_path / "bin/yalm", source, *ASK, "-q"], capture_output=True, env=environment)
    words = done.stderr.decode()
    assert (done.returncode, done.stdout, len(words.splitlines())) == (1, b"", 1), words
    venv = f"{os.environ['XDG_DATA_HOME']}/yalm/venv"
    command = f"python3 -m venv {venv} && {venv}/bin/pip install -r {tmp_path}/share/yalm/requirements.txt"
    assert words.rstrip().endswith(f"this installs what is missing: {command}")
    assert names(cache) == []


def test_gguf_files(bare, cache, tmp_path):
    """One that is cut off is refused in one line; of a directory the one that is in it is taken."""
    (tmp_path / "cut.gguf").write_bytes(b"GGUF" + bytes(2))
    assert "cut.gguf" in said(bare(tmp_path / "cut.gguf", *ASK, "-q"), 3)
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "neither a config.json" in said(bare(folder, *ASK), 3)
    writer = gguf.GGUFWriter(folder / "only.gguf", "nonesuch")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert f"{folder}/only.gguf" in said(bare(folder, *ASK, "-q"), 3)
    shutil.copy(folder / "only.gguf", folder / "another.gguf")
    assert f"2 GGUF files are in it: name one, as {folder}/another.gguf" in said(bare(folder, *ASK), 2)
    assert names(cache) == []


def test_errors_name_what_the_user_named(bare, source, cache):
    assert said(bare(source, "-m", "chat", "-q"), 2).startswith(f"yalm: {source}: this model has no chat template")


def test_dtype_is_of_what_is_converted(program, bare, source, cache):
    assert "is no GGUF file and no directory, which would be converted" in program.fails(2, *ASK, "--dtype", "q8")
    line = said(bare("nothing-there", *ASK, "--dtype", "q1"), 2)  # before anything is looked for
    types = re.search(r"expected one of (\S+), found 'q1'", line)[1]
    assert sorted(types.split(",")) == sorted(MATRIX_TYPES)


def test_a_draft_is_converted_too(bare, source, cache):
    done = bare(source, *ASK, "-q", "--speculate", f"draft={source}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == bare(source, *ASK, "-q").stdout and len(names(cache)) == 1
