"""Completions for each shell that is here: what the program takes, and nothing that it does not."""

import os
import shutil
import subprocess

import pytest
from harness import ROOT
from yalm_convert.plan import MATRIX_TYPES

FOLDER = ROOT / "packaging/completions"
CASES = (
    ("yalm --k", {"--keep", "--kv", "--kl-base"}),
    ("yalm x.gguf --kv ", {"fp16", "fp32", "int8"}),
    ("yalm x.gguf -d ", {"auto", "cpu", "cuda"}),
    ("yalm x.gguf -m c", {"completion", "chat", "calibrate"}),
    ("yalm x.gguf --dtype ", set(MATRIX_TYPES)),
    ("yalm cac", {"cache"}),
)
BASH = """source "$1"; IFS=' ' read -ra COMP_WORDS <<< "$2"; [[ $2 == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _yalm; printf '%s\\n' "${COMPREPLY[@]}" """
FISH = "source $argv[1]; complete -C $argv[2]"
ZSH = """zmodload zsh/zpty; zpty shell zsh -f -i
zpty -w shell "fpath=($1 \\$fpath); autoload -Uz compinit; compinit -u -D; PS1='> ';"
zpty -w -n shell "$2"$'\\t\\t'; zpty -r shell text "*$3*" && print found; zpty -d shell"""


def shell(name, script, *words):
    if not shutil.which(name):
        pytest.skip(f"no {name} here")
    environment = {**os.environ, "PATH": f"{ROOT}:{os.environ['PATH']}"}
    command = [name, *(("-f",) if name == "zsh" else ()), "-c", script, *(("-",) if name != "fish" else ()), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd="/")


@pytest.mark.parametrize(("line", "expected"), CASES)
@pytest.mark.parametrize("name", ["bash", "fish"])
def test_words(name, line, expected):
    done = shell(name, *((BASH, FOLDER / "yalm.bash") if name == "bash" else (FISH, FOLDER / "yalm.fish")), line)
    assert {word.split("\t")[0] for word in done.stdout.splitlines()} == expected, done


def test_zsh_completes_an_option():
    done = shell("zsh", ZSH, FOLDER, "yalm --check", "--check-finite")
    assert "found" in done.stdout, done
