"""What the converter's tests share: small directories of random models, and conversions that must succeed."""

import hf
import pytest
from read_model import read_model


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
