"""What people do first, by another program's habits, or to a file in use: each gets a line that helps."""

import json
import shutil
import subprocess
import sys
import time

import pytest
from harness import HANG, ROOT, convert_directory

HINTS = [
    (["-i", "x", "-ngl", "99"], "unknown option '-ngl' (-d cuda has all layers on a GPU, -d cpu none)"),
    (
        ["-i", "x", "--n-gpu-layers=99"],
        "unknown option '--n-gpu-layers' (-d cuda has all layers on a GPU, -d cpu none)",
    ),
    (["-i", "x", "-ctk", "q8_0"], "unknown option '-ctk' (the cache's type is --kv, of keys and values both)"),
    (["-i", "x", "-fa"], "unknown option '-fa' (leave it out: there is nothing to choose)"),
    (["-i", "x", "-fa", "on"], "unknown option '-fa' (leave it out"),
    (["-hf", "x/y"], "unknown option '-hf' (yalm downloads nothing: fetch the file, then yalm FILE)"),
    (["-sys", "Be brief."], "unknown option '-sys' (--system TEXT)"),
    (["-i"], "option '-i' needs a value (TEXT); -i TEXT is the text itself; without it yalm talks"),
    (["-cnv"], "unknown option '-cnv' (-m chat talks; -m chat -i TEXT answers once)"),
    (["-st"], "unknown option '-st' (-m chat talks"),
    (
        ["-i", "x", "-t", "0"],
        "option '-t': expected an integer from 1 to 4096, found '0'; -t is for threads; the temperature",
    ),
    (["-i", "x", "-t", "0.7"], "found '0.7'; -t is for threads; the temperature is --temp X"),
    (["-i", "x", "--jinja"], "unknown option '--jinja' (leave it out"),
    (["-m", "serve", "--api-key", "x"], "unknown option '--api-key' (--api-key-file FILE"),
    (["-m", "serve", "--tokens", "x"], "option '--tokens' does not belong to mode serve"),
    (["-i", "x", "-x"], "unknown option '-x' (yalm --help lists them; --set help lists rarer ones)"),
]


@pytest.mark.parametrize("args, message", HINTS, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_hints_for_other_programs_habits(program, args, message):
    assert message in program.fails(2, *args)


WORDS = {
    "list": "'list' is no file (yalm cache lists the models that were converted)",
    "pull": "'pull' is no file (yalm downloads nothing: fetch the file, then yalm FILE)",
    "rm": "'rm' is no file (yalm cache clear ID removes a model that was converted)",
}


@pytest.mark.parametrize("word", WORDS)
def test_words_of_another_program(bare, word, tmp_path):
    done = bare(word, "-i", "x", cwd=tmp_path)
    assert (done.returncode, done.stderr.decode()) == (2, f"yalm: {WORDS[word]}\n")


def test_options_that_mean_what_they_mean_elsewhere(bare, program, fable):
    """The model after -m, the text after -p, the context after -c, threads after -t."""
    fixed = ("-n", "9", "--temp", "0", "-q")
    whole = program.ok("-i", "The fox", "-T", "64", "--threads", "1", *fixed)
    done = bare("-m", fable, "-p", "The fox", "-c", "64", "-t", "1", *fixed)
    assert (done.returncode, done.stdout) == (0, whole), done.stderr
    assert bare("--model", fable, "-pThe fox", *fixed).stdout == whole
    assert bare("complete", fable, "-p", "The fox", *fixed).stdout == whole
    assert b"a model's file" in bare("-m", "speak", "-m", fable).stderr
    words = bare("-m", fable, "-m", "info").stdout
    assert words == program.ok("-m", "info") == bare("show", fable).stdout
    assert b"one argument too many" in bare("-m", fable, fable, "-p", "x").stderr


def test_modes_as_words(bare, chatty):
    fixed = ("-n", "9", "--temp", "0", "-q")
    asked = chatty.ok("-m", "chat", *fixed, stdin=b"The king\n")
    assert bare("run", chatty.model, "The king", *fixed).stdout == asked
    assert bare("chat", chatty.model, "-i", "The king", *fixed).stdout == asked
    assert b"one argument too many" in bare("run", chatty.model, "The", "king").stderr
    assert b"no model" in bare("serve").stderr


def test_what_is_piped_is_read(program):
    fixed = ("-n", "9", "--temp", "0", "-q")
    assert program.ok(*fixed, stdin=b"The fox") == program.ok("-i", "The fox", *fixed)
    assert program.ok("-m", "tokenize", stdin=b"The fox") == program.ok("-m", "tokenize", "-i", "The fox")
    assert "mode completion needs input: -i TEXT" in program.fails(2, stdin=b"")


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
