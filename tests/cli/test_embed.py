"""yalm -m embed: vectors of lines, beside what the logits of the same tokens say that they must be."""

import io
import json
import subprocess

import gguf
import gguf_files
import numpy as np
import pytest
from harness import BUILD, ROOT, built, convert_directory

FABLE = ROOT / "models/fable-4m"
TEXT = "Once upon a time\nthe fox ran\n\nand the old owl told a story that nobody had heard before, of a well and a lamp.\n"


def sentence_model(folder, mode, end=True):
    """The bundled model as a directory of sentence-transformers'."""
    folder.mkdir()
    for name in (
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.model",
        "tokenizer_config.json",
    ):
        if (FABLE / name).exists():
            (folder / name).write_bytes((FABLE / name).read_bytes())
    tokenizer = json.loads((FABLE / "tokenizer.json").read_text())
    special = {token: {"id": token, "ids": [i], "tokens": [token]} for i, token in ((1, "<s>"), (2, "</s>"))}
    behind = [{"SpecialToken": {"id": "</s>", "type_id": 0}}] if end else []
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, *behind]
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special,
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [{"path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    modes = {"lasttoken": False, "mean_tokens": False, "cls_token": False, mode: True}
    settings = {f"pooling_mode_{name}": on for name, on in modes.items()}
    (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 192, **settings}))
    return folder


@pytest.fixture(scope="module", params=["lasttoken", "mean_tokens"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("embed")
    return convert_directory(sentence_model(folder / "sentences", request.param), folder / "model.bin"), request.param


def embed(yalm, model, *options, text=TEXT):
    done = subprocess.run(
        [yalm, model, "-m", "embed", "-q", *options], input=text.encode(), capture_output=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def expected(yalm, model, mode, line, tmp_path):
    """The hidden states are what the classifier makes the logits of."""
    done = subprocess.run([yalm, model, "-m", "tokenize", "-f", "-"], input=line.encode(), capture_output=True)
    ids = np.array([*map(int, done.stdout.split()), 2], np.int32)
    ids.tofile(tmp_path / "ids")
    driver = built(BUILD / "tests/parity/driver")
    options = ["threads=1", "activations=fp32"]
    subprocess.run([driver, model, tmp_path / "ids", tmp_path / "logits", *options], check=True, timeout=600)
    logits = np.fromfile(tmp_path / "logits", np.float32).reshape(len(ids), -1).astype(np.float64)
    classifier = matrix(FABLE / "model.safetensors")
    hidden = np.linalg.lstsq(classifier, logits.T, rcond=None)[0].T
    vector = hidden[-1] if mode == "lasttoken" else hidden.sum(0)
    return vector / np.linalg.norm(vector)


def matrix(path):
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    entry = header.get("lm_head.weight") or header["model.embed_tokens.weight"]
    begin, end = entry["data_offsets"]
    bits = np.frombuffer(data[start + begin : start + end], "<u2").astype(np.uint32) << 16
    assert entry["dtype"] == "BF16"
    return bits.view(np.float32).reshape(entry["shape"]).astype(np.float64)


def test_vectors_are_what_the_logits_are_made_of(yalm, model, tmp_path):
    path, mode = model
    vectors = [json.loads(line) for line in embed(yalm, path, "--activations", "fp32").splitlines()]
    lines = TEXT.split("\n")[:-1]
    assert len(vectors) == len(lines) == 4
    for vector, line in zip(vectors, lines):
        wanted = expected(yalm, path, mode, line, tmp_path)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
        assert np.dot(vector, wanted) > 1 - 1e-7, line


def test_the_three_forms_say_the_same(yalm, model, tmp_path):
    path, _ = model
    vectors = np.array([json.loads(line) for line in embed(yalm, path).splitlines()], np.float32)
    table = np.loadtxt(io.BytesIO(embed(yalm, path, "-o", "csv")), delimiter=",", dtype=np.float32)
    array = np.load(io.BytesIO(embed(yalm, path, "-o", "npy")))
    assert np.array_equal(table, vectors) and np.array_equal(array, vectors) and array.dtype == "<f4"
    (tmp_path / "text").write_text(TEXT.rstrip("\n"))
    assert np.load(io.BytesIO(embed(yalm, path, "-o", "npy", "-f", tmp_path / "text"))).shape == array.shape
    one = json.loads(embed(yalm, path, "-i", TEXT.split("\n")[1]))
    assert np.dot(one, vectors[1]) > 1 - 1e-6  # lines that are evaluated together show in each other's last bits alone
    (tmp_path / "lines").write_bytes(TEXT.replace("\n", "\r\n").encode())
    assert np.array_equal(np.load(io.BytesIO(embed(yalm, path, "-o", "npy", "-f", tmp_path / "lines"))), array)


def test_a_gguf_file_has_the_same_vectors(yalm, tmp_path, model):
    path, mode = model
    kinds = {"mean_tokens": gguf.PoolingType.MEAN, "lasttoken": gguf.PoolingType.LAST}

    def change(writer):
        writer.add_pooling_type(kinds[mode])
        writer.add_add_eos_token(True)

    file = gguf_files.write(FABLE, tmp_path / "model.gguf", tokenizer=gguf_files.spm, change=change)
    found = embed(yalm, convert_directory(file, tmp_path / "model.bin"), "-o", "npy")
    assert found == embed(yalm, path, "-o", "npy")


def test_a_text_in_pieces_has_the_same_vector(yalm, model):
    path, _ = model
    whole, pieces = (
        np.load(io.BytesIO(embed(yalm, path, "-o", "npy", "--activations", "fp32", *more)))
        for more in ((), ("--set", "machine.chunk=3"))
    )
    assert np.abs(whole - pieces).max() < 1e-5


def test_a_line_that_is_too_long_is_cut(yalm, model):
    """To what the context holds beside what the model adds; standard error names it."""
    lines = ["x", "Once upon a time " * 100, "the fox", *["word " * 200] * 12]
    command = [yalm, model[0], "-m", "embed", "-q", "-o", "npy", "-T", "64"]
    done = subprocess.run(command, input="\n".join(lines).encode(), capture_output=True, timeout=600)
    said = "warning: lines 2, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 3 more: cut to 63 tokens (-T N takes more)"
    assert done.returncode == 0 and done.stderr.decode() == f"{said}\n"
    whole = "Once upon a time " * 15 + "Once upon"  # with what begins a text 63 tokens
    fits = subprocess.run([*command, "-i", whole], capture_output=True, timeout=600)
    assert (
        fits.stderr == b""
        and np.dot(np.load(io.BytesIO(done.stdout))[1], np.load(io.BytesIO(fits.stdout))[0]) > 1 - 1e-6
    )


def test_a_context_for_the_longest_line(yalm, tmp_path):
    """Without -T: what it needs, where the model was trained for so much."""
    folder = sentence_model(tmp_path / "sentences", "lasttoken")
    config = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 6000}
    (folder / "config.json").write_text(json.dumps(config))
    path = convert_directory(folder, tmp_path / "model.bin")
    said = []
    for line in ("Once upon a time " * 1200, "Once upon a time " * 1600):
        done = subprocess.run(
            [yalm, path, "-m", "embed", "-o", "npy"], input=line.encode(), capture_output=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stderr.decode())
    assert "context 4810," in said[0] and "warning" not in said[0]
    assert "context 6000," in said[1] and "line 1: cut to 5999 tokens (the model was trained for no more)" in said[1]


def fails(yalm, code, *arguments, text="x\n"):
    done = subprocess.run([yalm, *arguments, "-q"], input=text.encode(), capture_output=True, timeout=600)
    assert done.returncode == code and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stdout == b""
    return done.stderr.decode()


def test_refused(yalm, fable, model, tmp_path):
    assert "makes no vectors of texts" in fails(yalm, 2, fable, "-m", "embed")
    plain = convert_directory(sentence_model(tmp_path / "plain", "lasttoken", end=False), tmp_path / "plain.bin")
    assert "line 2: number of tokens: found 0" in fails(
        yalm, 2, plain, "-m", "embed", "--set", "text.bos=off", text="x\n\n"
    )
    # Behind more lines than are evaluated at once, too: none is printed before.
    assert "line 602: number of tokens: found 0" in fails(
        yalm, 2, plain, "-m", "embed", "--set", "text.bos=off", text="x\n" * 601 + "\n"
    )
    said = fails(yalm, 2, plain, "-m", "embed", "--dimensions", "50")
    assert "found 50, and vectors of 256 alone" in said and '"matryoshka_dimensions" in config.json' in said


def test_dimensions(yalm, tmp_path):
    """A vector's first components, of length 1 again, where config.json says that the model was trained for so few."""
    folder = sentence_model(tmp_path / "sentences", "mean_tokens")
    config = json.loads((folder / "config.json").read_text()) | {"matryoshka_dimensions": [256, 64, 32]}
    (folder / "config.json").write_text(json.dumps(config))
    path = convert_directory(folder, tmp_path / "model.bin")
    whole, same, cut = (
        np.load(io.BytesIO(embed(yalm, path, "-o", "npy", *more)))
        for more in ((), ("--dimensions", "256"), ("--dimensions", "50"))
    )
    assert np.array_equal(same, whole) and cut.shape == (4, 50)
    expected = whole[:, :50].astype(np.float64)
    assert np.abs(cut - expected / np.linalg.norm(expected, axis=1, keepdims=True)).max() < 1e-7
    for wrong in ("31", "257"):
        assert f"found {wrong}, expected 32 to 256" in fails(yalm, 2, path, "-m", "embed", "--dimensions", wrong)
