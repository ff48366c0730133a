"""What the converter's tests share: small directories of random models, and conversions that must succeed."""

import functools
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


PRESETS = {"llama": "tiny-gqa", "mistral": "tiny-window", "qwen3_moe": "tiny-qwen3-moe"}  # others: tiny- and the name


@pytest.fixture(scope="session")
def bases(tmp_path_factory):
    """bases(name) -> its directory, which stays as it is; made when first asked for."""
    home = tmp_path_factory.mktemp("bases")

    @functools.cache
    def get(name):
        if name == "sharded":
            return hf.make("tiny-gqa", home / name, "--shard-gib", "0.0005")
        return hf.make(PRESETS.get(name, f"tiny-{name}"), home / name)

    return get


@pytest.fixture
def directory(bases, tmp_path):
    """directory(base) -> a copy to break."""
    return lambda base="llama": hf.copy(bases(base), tmp_path / "model")


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
