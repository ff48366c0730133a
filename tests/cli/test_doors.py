"""What people do first, by another program's habits, or to a file in use: each gets a line that helps."""

import json
import shutil
import subprocess
import sys
import time

import pytest
from harness import HANG, ROOT, convert_directory

HINTS = [
    (["-i", "x", "-ngl", "99"], "option '-n': expected an integer from -2 to 1073741823, found 'gl'; -d cuda runs all"),
    (["-i", "x", "--n-gpu-layers=99"], "unknown option '--n-gpu-layers' (-d cuda runs all of the model on a GPU)"),
    (["-i", "x", "-c", "99"], "unknown option '-c' (the context is -T N, or --ctx N)"),
    (["-p", "Once"], "option '-p' does not belong to mode completion (only to throughput); text comes after -i"),
    (["-i", "x", "-ctk", "q8_0"], "unknown option '-c' (the cache's type is --kv)"),
    (["-i", "x", "-x"], "unknown option '-x' (yalm --help lists them; rarer ones are keys of --set KEY=VALUE)"),
]


@pytest.mark.parametrize("args, message", HINTS, ids=lambda value: value[-2] if isinstance(value, list) else "")
def test_hints_for_other_programs_habits(program, args, message):
    assert message in program.fails(2, *args)


def test_a_directory_is_to_be_converted(bare, tmp_path):
    done = bare(tmp_path, "-i", "x")
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"yalm: {tmp_path}: a directory; make a model file of it first: tools/convert.py {tmp_path} model.bin\n"
    )


def test_a_context_beyond_the_trained_one_is_warned_of(program):
    long = program("-i", "x", "-n", "1", "-T", "4096").stderr.decode()
    assert "warning: a context of 4096 (-T) is more than the 2048 positions that the model was trained for" in long
    assert b"warning" not in program("-i", "x", "-n", "1", "-T", "2048").stderr
    assert b"warning" not in program("-i", "x", "-n", "1", "-T", "4096", "-q").stderr


def test_a_doubled_bos_is_warned_of(program):
    told = "warning: the text begins with '<s>' itself, and a second one is put before it"
    assert told in program("-i", "<s>x", "-n", "1", "--set", "text.special=on").stderr.decode()
    for more in (["--set", "text.bos=off"], ["-q"]):
        assert b"warning" not in program("-i", "<s>x", "-n", "1", "--set", "text.special=on", *more).stderr
    assert b"warning" not in program("-i", "<s>x", "-n", "1").stderr


def test_escapes(program):
    """In the prompt and in stop strings, where they are asked for."""
    plain = program.ok("-m", "tokenize", "-i", "a\nb\tc\\'\x41\\q")
    assert program.ok("-m", "tokenize", "-e", "-i", r"a\nb\tc\\\'\x41\q") == plain
    assert program.ok("-m", "tokenize", "-i", r"a\nb\tc\\\'\x41\q") != plain
    assert program.ok("-m", "tokenize", "--escapes", "-i", r"\x00\x") == program.ok("-m", "tokenize", "-i", r"\x00\x")
    fixed = ["-i", "Once upon a time", "-n", "60", "--seed", "4", "--no-echo", "-q"]
    whole = program.ok(*fixed)
    assert b"\n" in whole.strip()
    assert program.ok(*fixed, "-e", "--stop", r"\n").rstrip(b"\n") == whole[: whole.index(b"\n")]


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    """The bundled model with a token that its embedding does not have."""
    directory = tmp_path_factory.mktemp("padded") / "fable"
    shutil.copytree(ROOT / "models/fable-4m", directory)
    path = directory / "tokenizer.json"
    root = json.loads(path.read_text(encoding="utf-8"))
    root["added_tokens"].append({**root["added_tokens"][2], "id": 4096, "content": "<pad>"})
    path.write_text(json.dumps(root), encoding="utf-8")
    return convert_directory(directory, directory.parent / "padded.bin")


def test_a_token_that_the_model_does_not_know(bare, padded, program):
    done = bare(padded, "-m", "tokenize", "--set", "text.special=on", "-i", "a<pad>b")
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "yalm: the text has token 4096 ('<pad>'), which the model does not know: its embedding ends at 4095\n"
    )
    same = ["-i", "Once <pad>", "-n", "9", "--seed", "1", "-q"]
    assert bare(padded, *same).stdout == program.ok(*same)


def test_a_window_as_long_as_the_context(bare, tmp_path):
    """Its oldest keys leave as they do in a longer context, and no sinks take their place."""
    command = [sys.executable, ROOT / "tools/random_hf_model.py", "tiny-window", tmp_path / "tiny", "--dtype", "fp32"]
    subprocess.run(command, check=True, capture_output=True)
    model = convert_directory(tmp_path / "tiny", tmp_path / "tiny.bin")
    (tmp_path / "ids").write_text(" ".join(map(str, range(3, 67, 7))))
    fixed = [
        "--tokens",
        tmp_path / "ids",
        "-n",
        "60",
        "--temp",
        "0",
        "--set",
        "text.ignore_eos=on",
        "--kv",
        "fp32",
        "-q",
    ]
    runs = [bare(model, *fixed, "--activations", "fp32", "-T", context).stdout for context in (48, 49, 200)]
    assert runs[0] == runs[1] == runs[2] and len(runs[0].split()) == 70


def test_a_model_file_that_is_shortened_while_it_runs(yalm, fable, tmp_path):
    model = tmp_path / "model.bin"
    shutil.copy(fable, model)
    command = [str(yalm), str(model), "-i", "Once", "-n", "-1", "--set", "text.ignore_eos=on", "-q"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(200)  # it is under way
        time.sleep(0.1)
        with model.open("r+b") as file:
            file.truncate(1_000_000)
        _, err = process.communicate(timeout=HANG)
    assert process.returncode == 3, err
    assert err.decode() == (
        f"yalm: {model}: pages of the file are gone: it was shortened while yalm ran, or its disk failed\n"
    )
