"""tools/convert.py --bits: which matrices get which type by how many bits there are."""

import functools
import math
import re

import hf
import pytest
from read_model import read_model

LAYERS = range(4)  # the bundled model's
TYPES = ("q2", "q3", "q4n", "q5", "q6", "q8")  # from the coarsest on
KEPT = ("--keep", "embedding=q6")  # and classifier: the layers have their own bits then
ROW_SCALE = 32 / 192  # bits a weight, at most: the narrowest of its matrices has so many columns


def planned(call, model, *options):
    """What the plan says of each tensor before anything is written. call: hf.call() but for its arguments."""
    code, plan, err = call(model, "--dry-run", "--dtype", "q4", *options)
    assert code == 0, err
    rows = [line.split() for line in plan.splitlines() if re.match(r" *\d+ +\d+  ", line)]
    return {row[3]: {"dtype": row[2], "length": int(row[1]), "shape": list(map(int, row[4::2]))} for row in rows}


@pytest.fixture
def call(monkeypatch, capsys):
    return functools.partial(hf.call, monkeypatch, capsys)


@pytest.fixture
def types(call):
    """types(*options) -> ({matrix of the layers: type}, bits a weight on average)."""

    def of(*options):
        tensors = {
            name: entry
            for name, entry in planned(call, hf.FABLE, *options).items()
            if name.startswith("layers.") and entry["dtype"] in TYPES
        }
        bits = 8 * sum(entry["length"] for entry in tensors.values())
        return {name: entry["dtype"] for name, entry in tensors.items()}, bits / sum(
            math.prod(entry["shape"]) for entry in tensors.values()
        )

    return of


def total(found):
    return sum(TYPES.index(dtype) for dtype in found.values())


def test_the_ends_of_what_there_may_be(types):
    found, bits = types("--bits", "4.25", *KEPT)
    assert set(found.values()) == {"q4n"} and 4.25 < bits <= 4.25 + ROW_SCALE
    found, bits = types("--bits", "2.25", *KEPT)
    assert set(found.values()) == {"q2"} and 2.25 < bits <= 2.25 + ROW_SCALE
    found, bits = types("--bits", "8.5", *KEPT)
    assert set(found.values()) == {"q8"} and bits == 8.5


def test_the_most_sensitive_come_first_and_the_budget_is_kept(types):
    before = None
    for asked in (2.5, 2.9, 3.4, 4.0, 4.5, 4.8, 5.3, 6.0, 7.5):
        found, bits = types("--bits", str(asked), *KEPT)
        assert asked - 0.3 < bits <= asked
        for n in LAYERS:
            of = {part: TYPES.index(found[f"layers.{n}.{part}"]) for part in ("v", "down", "gate")}
            assert of["v"] >= of["down"] >= of["gate"], (asked, of)
        for part in ("down", "gate", "q"):  # of equal kinds the outer layers first
            assert TYPES.index(found[f"layers.0.{part}"]) >= TYPES.index(found[f"layers.1.{part}"])
        assert before is None or total(found) > before
        before = total(found)
    assert len(set(types("--bits", "5.3", *KEPT)[0].values())) >= 3


def test_what_is_written_is_what_was_planned(call, tmp_path):
    assert call(hf.FABLE, tmp_path / "out", "--dtype", "q4", *KEPT)[0] == 0
    plan = planned(call, hf.FABLE, *KEPT)
    written = {name: entry for name, (entry, _) in read_model(tmp_path / "out")[1].items()}
    assert plan == {name: {key: entry[key] for key in ("dtype", "length", "shape")} for name, entry in written.items()}


def test_by_default_some_are_finer(types):
    found, bits = types(*KEPT)
    assert 4.4 < bits <= 4.5 and {found[f"layers.{n}.v"] for n in LAYERS} <= {"q5", "q6", "q8"}


def test_what_is_multiplied_together_has_one_type(types):
    for asked in (2.6, 3.3, 4.7, 5.4, 6.4, 7.7):
        found, _ = types("--bits", str(asked))
        for n in LAYERS:
            assert found[f"layers.{n}.q"] == found[f"layers.{n}.k"]
            assert found[f"layers.{n}.gate"] == found[f"layers.{n}.up"]


def test_all_experts_of_a_layer_have_one_type(call, tmp_path):
    model = hf.make("tiny-mixtral", tmp_path / "tiny")
    types = set()
    for asked in ("2.5", "3.3", "4.5", "5.7", "6.6", "8.4"):
        experts: dict = {}
        for name, entry in planned(call, model, "--bits", asked).items():
            if ".experts." in name:
                _, layer, _, _, part = name.split(".")
                experts.setdefault((layer, part), set()).add(entry["dtype"])
        assert experts and all(len(found) == 1 for found in experts.values())
        types |= set().union(*experts.values())
    assert types == set(TYPES)


@pytest.mark.parametrize("preset, outside", [
    (None, {"embedding": "q6"}),
    ("tiny-mixtral", {"classifier": "q6", "embedding": "q4"}),
])  # fmt: skip
def test_classifier_and_embedding_take_part(preset, outside, call, tmp_path):
    """The file takes no more than with the layers' bits and the types that they have by themselves."""
    model, seen = hf.make(preset, tmp_path / "tiny") if preset else hf.FABLE, {name: [] for name in outside}
    keep = [option for name, dtype in outside.items() for option in ("--keep", f"{name}={dtype}")]
    for bits in ("2.25", "3.2", "4.5", "6.5"):
        found, kept = (planned(call, model, "--bits", bits, *options) for options in ((), keep))
        layers = [entry for name, entry in found.items() if name.startswith("layers.") and entry["dtype"] in TYPES]
        most = float(bits) / 8 * sum(math.prod(entry["shape"]) for entry in layers)
        most += sum(kept[name]["length"] for name in outside)
        assert 0.93 * most < sum(entry["length"] for entry in (*layers, *(found[name] for name in outside))) <= most
        for name, types in seen.items():
            types.append(TYPES.index(found[name]["dtype"]))
    for types in seen.values():
        assert types == sorted(types) and len(set(types)) >= 3


def test_what_is_named_stays(types):
    found, _ = types("--bits", "8.5", "--keep", "layers.*.v=q4", "--keep", "layers.0.*=bf16", "--keep", "layers.1.o=q5")
    assert {name for name, dtype in found.items() if dtype == "q4n"} == {f"layers.{n}.v" for n in LAYERS if n > 0}
    assert {name for name, dtype in found.items() if dtype == "q5"} == {"layers.1.o"}


@pytest.mark.parametrize("options, expected", [
    (("--dtype", "q4", "--bits", "2.2"), "--bits: found '2.2', expected a number from 2.25 to 8.5"),
    (("--dtype", "q4", "--bits", "nan"), "--bits: found 'nan', expected a number"),
    (("--dtype", "q4", "--bits", "many"), "--bits: found 'many', expected a number"),
    (("--dtype", "q5", "--bits", "6"), "--bits: needs --dtype q4"),
    (("--bits", "5"), "--bits: needs --dtype q4"),
])  # fmt: skip
def test_refused(options, expected, monkeypatch, capsys, tmp_path):
    code, _, err = hf.call(monkeypatch, capsys, hf.FABLE, tmp_path / "model.bin", *options)
    assert code == 2 and expected in err
    assert not (tmp_path / "model.bin").exists()
