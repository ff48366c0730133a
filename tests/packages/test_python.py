"""The Python package over the library in place: what it gives is what the program and the library give."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from harness import ROOT, built

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ opening | default('assistant:') }}"


@pytest.fixture(scope="module")
def yalm_package():
    patch = pytest.MonkeyPatch()
    patch.setenv("YALM_LIBRARY", str(built(ROOT / "libyalm.so")))
    patch.setenv("PATH", f"{ROOT}:{os.environ['PATH']}")
    patch.syspath_prepend(str(ROOT / "packaging/python"))
    yield importlib.import_module("yalm")
    patch.undo()


@pytest.fixture(scope="module")
def model(yalm_package, fable):
    with yalm_package.Model(fable) as opened:
        yield opened


def told(*words, stdin=None):
    done = subprocess.run(
        [ROOT / "yalm", *map(str, words), "-q"], capture_output=True, text=True, input=stdin, check=True
    )
    return done.stdout.rstrip("\n")


def test_facts(yalm_package, model):
    assert (model.name, model.weights, model.vocab_size, model.context) == ("fable-4m", "bf16", 4096, 2048)
    version = re.search(r"^VERSION +:= (\S+)$", (ROOT / "Makefile").read_text(), flags=re.M)[1]
    assert yalm_package.version().startswith(f"{version} (")
    assert f"libyalm.so.{version.rpartition('.')[0]}" == importlib.import_module("yalm._library").NAME


def test_texts_are_those_of_the_program(model, fable, sentence):
    greedy = list(model.generate("Once upon a time", max_tokens=12, temperature=0))
    assert len(greedy) > 5 and "".join(greedy) == sentence and model.stopped_by == "limit"
    drawn = "".join(model.generate("The king", max_tokens=40, seed=4, temperature=1.5, top_k=0))
    options = ("-i", "The king", "-n", 40, "--seed", 4, "--temp", 1.5, "--top-k", 0, "--no-echo")
    assert drawn == told(fable, *options)
    assert drawn != "".join(model.generate("The king", max_tokens=40, seed=5, temperature=1.5, top_k=0))


def test_ends_of_a_text(model, sentence):
    stop = sentence.split()[-1]
    text = "".join(model.generate("Once upon a time", temperature=0, stop=stop))
    assert text == sentence[: sentence.index(stop)] and model.stopped_by == "stop"
    assert "".join(model.generate("Is it?", grammar='root ::= "yes" | "no"', seed=1)) in ("yes", "no")
    assert model.stopped_by == "grammar"


def test_one_who_leaves_ends_the_text(model, sentence):
    text = model.generate("Once", seed=3)
    assert next(text)
    text.close()
    assert model.stopped_by == "caller"
    assert "".join(model.generate("Once upon a time", max_tokens=12, temperature=0)) == sentence


def test_tokens(model, fable):
    text = "Naïve — 😀 <s> "
    ids = model.tokenize(text)
    assert ids == [int(n) for n in told(fable, "-m", "tokenize", "-i", text).split()]
    assert model.detokenize(ids) == text and model.tokenize(text.encode()) == ids
    assert model.tokenize("<s>", bos=False, special=True) == [1]


def test_logits(model):
    """Whatever was read before; row by row the same as each beginning's."""
    ids = model.tokenize("Once upon a time there was a king")
    every = model.logits(ids, every=True)
    assert every.shape == (len(ids), model.vocab_size) and every.dtype == np.float32
    for n in (1, 4, len(ids)):
        row = model.logits(ids[:n])
        assert row.shape == (model.vocab_size,) and np.abs(row - every[n - 1]).max() < 0.01 * np.ptp(row)
    long = [5 + i % 4000 for i in range(600)]
    assert np.abs(model.logits(long, every=True)[-1] - model.logits(long)).max() < 0.01 * np.ptp(every)


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    source = tmp_path_factory.mktemp("talker") / "talker"
    shutil.copytree(ROOT / "models/fable-4m", source, ignore=shutil.ignore_patterns("make", "reference", "heldout.txt"))
    (source / "chat_template.jinja").write_text(TEMPLATE)
    return source


def test_chat(yalm_package, talker, tmp_path, capfd, monkeypatch):
    """A directory is converted by the program; the answer is that of -m chat."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = yalm_package.Model(talker, dtype="q8", keep=["*.q=q6", "*.k=q6"], check_finite=True, follow_links=False)
    assert "is converted once" in capfd.readouterr().err
    answer = "".join(model.chat([{"role": "user", "content": "The king"}], max_tokens=9, temperature=0))
    how = ("--dtype", "q8", "--keep", "*.q=q6", "--keep", "*.k=q6", "--check-finite")
    asked = (talker, *how, "-m", "chat", "-i", "The king", "-n", 9, "--temp", 0)
    assert answer == told(*asked)
    other = model.chat([{"role": "user", "content": "Hi"}], template={"opening": "king:"}, max_tokens=9, temperature=0)
    assert "".join(other) == told(*asked[:-5], "Hi", *asked[-4:], "--template-set", "opening=king:")
    model.close()
    with pytest.raises(yalm_package.Error, match="closed"):
        model.tokenize("x")


def test_mistakes_are_the_librarys_lines(yalm_package, model, tmp_path):
    cases = (
        (lambda: yalm_package.Model(tmp_path / "none.bin"), "No such file", 1),
        (lambda: yalm_package.Model(ROOT / "models/fable-4m", dtype="q1"), "expected one of fp32,", 2),
        (lambda: yalm_package.Model(ROOT / "README.md"), "README.md", 3),
        (lambda: model.generate("x", temperature=-1), "temperature", 2),
        (lambda: list(model.generate("x", grammar="root =")), "grammar", 2),
        (lambda: list(model.generate([])), "the prompt has no tokens", 2),
        (lambda: model.logits([]), "found 0", 2),
        (lambda: model.logits([4096]), "4096", 2),
        (lambda: model.chat([{"role": "user", "content": "Hi"}]), "no chat template", 2),
    )
    for number, (mistake, words, status) in enumerate(cases):
        with pytest.raises(yalm_package.Error, match=words) as found:
            mistake()
        assert found.value.status == status, (number, found.value)
    with pytest.raises(TypeError, match="temprature"):
        model.generate("x", temprature=1)


def test_threads_take_turns(model, sentence):
    texts = []

    def write():
        texts.append("".join(model.generate("Once upon a time", max_tokens=12, temperature=0)))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [sentence] * 4


def test_another_library_is_refused(tmp_path):
    """One whose structs have another size, as a later version's have."""
    header = (ROOT / "src/yalm.h").read_text().replace("    int top_k; ", "    int top_k, new_field[2]; ")
    shutil.copytree(ROOT / "packaging/python/yalm", tmp_path / "yalm", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "yalm/include/yalm.h").write_text(header)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "YALM_LIBRARY": str(ROOT / "libyalm.so")}
    done = subprocess.run([sys.executable, "-c", "import yalm"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "of another yalm.h than" in done.stderr.splitlines()[-1]
    environment["YALM_LIBRARY"] = str(tmp_path / "none.so")
    done = subprocess.run([sys.executable, "-c", "import yalm"], env=environment, capture_output=True, text=True)
    assert "none.so: cannot open shared object file" in done.stderr.splitlines()[-1]


def test_info_names_the_file(fable):
    assert json.loads(told(fable, "-m", "info", "-o", "json"))["file"] == str(fable)


def test_it_is_small():
    files = (ROOT / "packaging/python/yalm").glob("*.py")
    assert sum(len(file.read_text().splitlines()) for file in files) <= 300


def test_a_model_file_is_not_converted(yalm_package, fable, monkeypatch):
    """No program is needed for it."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert yalm_package.Model(fable).name == "fable-4m"
    with pytest.raises(yalm_package.Error, match="not on PATH"):
        yalm_package.Model(ROOT / "models/fable-4m")
