"""What the converter's tests share: small directories of random models, and conversions that must succeed."""

import os

import hf
import pytest
from read_model import read_model

BAD_MODEL = 3  # the exit code


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """tiny(preset, *options) -> its directory; made when first asked for."""
    home, made = tmp_path_factory.mktemp("tiny"), {}

    def get(preset, *options):
        key = "_".join((preset, *options))
        if key not in made:
            made[key] = hf.make(preset, home / key, *options)
        return made[key]

    return get


@pytest.fixture
def convert(monkeypatch, capsys, tmp_path):
    """convert(source, *options) -> (metadata, tensors, stderr); the conversion must succeed."""

    def do(source, *options):
        code, out, err = hf.call(monkeypatch, capsys, source, tmp_path / "model.bin", *options)
        assert (code, out) == (0, ""), err
        metadata, tensors = read_model(tmp_path / "model.bin")
        return metadata, tensors, err

    return do


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    home = tmp_path_factory.mktemp("bases")
    names = {"llama": "tiny-gqa", "mistral": "tiny-window", "mixtral": "tiny-mixtral"}
    names |= {"qwen2": "tiny-qwen2", "qwen3_moe": "tiny-qwen3-moe", "phi3": "tiny-phi3", "smollm3": "tiny-smollm3"}
    names |= {name: f"tiny-{name}" for name in ("gemma2", "gemma3", "olmo3", "gpt-oss", "glm4-moe")}
    names |= {"granite": "tiny-granite", "ministral3": "tiny-ministral3", "qwen3": "tiny-qwen3"}
    names |= {name.removeprefix("tiny-"): name for name in hf.random_hf_model.rows()} | {"gemma": "tiny-gemma"}
    names |= {name: f"tiny-{name}" for name in ("phi", "mpt", "falcon", "gpt2", "starcoder2", "cohere2")}
    made = {name: hf.make(preset, home / name) for name, preset in names.items()}
    made["sharded"] = hf.make("tiny-gqa", home / "sharded", "--shard-gib", "0.0005")
    return made


@pytest.fixture
def directory(bases, tmp_path):
    """directory(base) -> a copy to break."""
    return lambda base="llama": hf.copy(bases[base], tmp_path / "model")


@pytest.fixture
def refused(monkeypatch, capsys, tmp_path):
    """refused(directory, text, *options): exit code 3, one line that holds `text`, nothing written."""

    def check(directory, *texts, options=(), code=BAD_MODEL):
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        found, stdout, err = hf.call(monkeypatch, capsys, directory, out / "model.bin", *options)
        lines = [line for line in err.splitlines() if not line.startswith("convert.py: warning: ")]
        assert (found, stdout) == (code, ""), err
        assert len(lines) == 1 and lines[0].startswith("convert.py: "), err
        for text in texts:
            assert text in lines[0]
        assert os.listdir(out) == []

    return check
