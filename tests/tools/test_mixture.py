"""tools/convert.py --bits: which matrices become q8 by how many bits there are."""

import math

import hf
import pytest
from read_model import read_model

LAYERS = range(4)  # the bundled model's


@pytest.fixture
def types(monkeypatch, capsys, tmp_path):
    """types(*options) -> ({matrix of the layers: type}, bits a weight on average)."""

    def of(*options):
        code, _, err = hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "model.bin", "--dtype", "q4", *options)
        assert code == 0, err
        tensors = {
            name: entry
            for name, (entry, _) in read_model(tmp_path / "model.bin")[1].items()
            if name.startswith("layers.") and entry["dtype"] in ("q4", "q8")
        }
        bits = 8 * sum(entry["length"] for entry in tensors.values())
        return {name: entry["dtype"] for name, entry in tensors.items()}, bits / sum(
            math.prod(entry["shape"]) for entry in tensors.values()
        )

    return of


def chosen(found):
    return {name for name, dtype in found.items() if dtype == "q8"}


def test_the_ends_of_what_there_may_be(types):
    assert not chosen(types("--bits", "4.5")[0])
    found, bits = types("--bits", "8.5")
    assert chosen(found) == set(found) and bits == 8.5


def test_few_bytes_more_by_default(types):
    found, bits = types()
    assert chosen(found) and chosen(found) <= {f"layers.{n}.v" for n in LAYERS} and bits <= 4.63


def test_the_most_sensitive_come_first_and_the_budget_is_kept(types):
    before = set()
    for asked in (4.6, 4.8, 5.5, 6.5, 7.5):
        found, bits = types("--bits", str(asked))
        assert asked - 0.3 < bits <= asked
        now = chosen(found)
        if asked >= 4.8:
            assert {f"layers.{n}.v" for n in LAYERS} <= now
        assert len(now) >= len(before)
        before = now
    downs = chosen(types("--bits", "5.2")[0]) & {f"layers.{n}.down" for n in LAYERS}
    assert downs in ({"layers.3.down"}, {"layers.3.down", "layers.0.down"})  # of equal kinds the outer layers first


def test_what_is_multiplied_together_has_one_type(types):
    for asked in (5.9, 6.4, 7.0, 7.7):
        found, _ = types("--bits", str(asked))
        for n in LAYERS:
            assert found[f"layers.{n}.q"] == found[f"layers.{n}.k"]
            assert found[f"layers.{n}.gate"] == found[f"layers.{n}.up"]


def test_all_experts_of_a_layer_have_one_type(monkeypatch, capsys, tmp_path):
    model = hf.make("tiny-mixtral", tmp_path / "tiny")
    types = set()
    for asked in ("5.5", "6.5", "7.5"):
        assert hf.call(monkeypatch, capsys, model, tmp_path / "out", "--dtype", "q4", "--bits", asked)[0] == 0
        experts: dict = {}
        for name, (entry, _) in read_model(tmp_path / "out")[1].items():
            if ".experts." in name:
                _, layer, _, _, part = name.split(".")
                experts.setdefault((layer, part), set()).add(entry["dtype"])
        assert experts and all(len(found) == 1 for found in experts.values())
        types |= set().union(*experts.values())
    assert types == {"q4", "q8"}


def test_what_is_named_stays(types):
    found, _ = types("--bits", "8.5", "--keep", "layers.*.v=q4", "--keep", "layers.0.*=bf16")
    assert {name for name, dtype in found.items() if dtype == "q4"} == {f"layers.{n}.v" for n in LAYERS if n > 0}


@pytest.mark.parametrize("options, expected", [
    (("--dtype", "q4", "--bits", "4.4"), "--bits: found '4.4', expected a number from 4.5 to 8.5"),
    (("--dtype", "q4", "--bits", "nan"), "--bits: found 'nan', expected a number"),
    (("--dtype", "q4", "--bits", "many"), "--bits: found 'many', expected a number"),
    (("--dtype", "q8", "--bits", "5"), "--bits: needs --dtype q4"),
    (("--bits", "5"), "--bits: needs --dtype q4"),
])  # fmt: skip
def test_refused(options, expected, monkeypatch, capsys, tmp_path):
    code, _, err = hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "model.bin", *options)
    assert code == 2 and expected in err
    assert not (tmp_path / "model.bin").exists()
