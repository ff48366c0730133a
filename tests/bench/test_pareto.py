"""bench/pareto.py on figures that are given: whom a form is compared with, the table, and the plot."""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "bench"))
import pareto
import quantisation_quality


def form(engine, name, file, kl, decode, prompt):
    made = pareto.Form(engine, name, file, kl)
    made.rates = {"decode": decode, "prompt": prompt}
    return made


@pytest.fixture
def forms(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * 2_000_000)
    return [
        form("yalm", "q4", file, 0.1, [40, 10, 30], [100]),
        form("yalm", "q8", file, 0.001, [20], [50]),
        form("llama.cpp", "Q4_0", file, 0.2, [60], [200]),
        form("llama.cpp", "Q4_K_M", file, 0.05, [15], [20]),
        form("llama.cpp", "Q5_K_M", file, 0.02, [10], [25]),
    ]


def test_beside_the_fastest_that_is_as_good(forms):
    assert pareto.beside(forms[0], forms, "decode") == "2.00 (Q4_K_M)"  # the median of three; Q4_0 loses more
    assert pareto.beside(forms[0], forms, "prompt") == "4.00 (Q5_K_M)"
    assert pareto.beside(forms[1], forms, "decode") == ""  # nobody is as good
    assert pareto.beside(forms[2], forms, "decode") == ""  # a peer


def test_table(forms, capsys):
    pareto.print_table(argparse.Namespace(), forms)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| yalm | q8 | 2.0 | 0.00100 | 20.0 |  | 50.0 |  |"
    assert lines[5] == "| yalm | q4 | 2.0 | 0.10000 | 30.0 | 2.00 (Q4_K_M) | 100.0 | 4.00 (Q5_K_M) |"


def test_plots(forms, tmp_path):
    pareto.draw(argparse.Namespace(model=Path("a-model.gguf"), plot=tmp_path / "trade"), forms)
    for of in ("decode", "prompt"):
        picture = ElementTree.parse(tmp_path / f"trade-{of}.svg").getroot()
        words = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
        assert f"a-model: {of}, and what is lost" in words and {"q4", "Q4_K_M"} <= set(words)
        assert len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))) == len(forms)


def test_a_folder_stands_for_its_file(tmp_path):
    folder, place = tmp_path / "model", tmp_path / "place"
    place.mkdir()
    for i, text in ((10, b"end"), (2, b"middle, "), (1, b"GGUF, ")):
        (folder / f"package{11 - i}/data").mkdir(parents=True)
        (folder / f"package{11 - i}/data/part{i}.bin").write_bytes(text)
    assert quantisation_quality.whole(folder, place).read_bytes() == b"GGUF, middle, end"
    (folder / "one.gguf").touch()
    assert quantisation_quality.whole(folder, place) == quantisation_quality.whole(folder / "one.gguf", place)
    (folder / "two.gguf").touch()
    with pytest.raises(SystemExit, match="model: expected one GGUF file in it, or its parts in order"):
        quantisation_quality.whole(folder, place)
