"""What the command line takes and refuses, before and without any work."""

import re

import pytest
from harness import ROOT

USAGE = [
    (["-i", "x", "--tempp", "1"], "unknown option '--tempp'"),
    (["-i", "x", "-z"], "unknown option '-z'"),
    (["-i", "x", "-n", "1e3"], "option '-n': expected an integer from -2"),
    (["-i", "x", "-n", " 5"], "option '-n'"),
    (["-i", "x", "-n", "0x10"], "option '-n'"),
    (["-i", "x", "-n", "99999999999999999999"], "option '-n'"),
    (["-i", "x", "--temp", "nan"], "option '--temp': expected a number from 0 to 1000, found 'nan'"),
    (["-i", "x", "--temp", "-1"], "option '--temp'"),
    (["-i", "x", "--temp", "inf"], "option '--temp'"),
    (["-i", "x", "--temp", "0x1p3"], "option '--temp'"),
    (["-i", "x", "--temp", ""], "option '--temp'"),
    (["-i", "x", "--top-p", "1.5"], "option '--top-p': expected a number from 0 to 1"),
    (["-i", "x", "--seed", "-2"], "option '--seed'"),
    (["-i", "x", "--seed", "18446744073709551616"], "option '--seed'"),
    (["-i", "x", "--kv", "fp8"], "option '--kv': expected one of fp16,fp32,int8, found 'fp8'"),
    (
        ["-i", "x", "--activations", "int4"],
        "option '--activations': expected one of auto,int16,int8,fp32, found 'int4'",
    ),
    (
        ["-i", "x", "--set", "machine.isa=sse"],
        "option 'machine.isa': expected one of auto,scalar,avx2,avxvnni,avx512,avx512vnni,amx,neon,neondot,neoni8mm",
    ),
    (["-i", "x", "-d", "tpu"], "option '-d': expected one of auto,cpu,cuda"),
    (
        ["-i", "x", "--set", "sampling.logit_bias=abc"],
        "option 'sampling.logit_bias': expected a token id, a sign and a number",
    ),
    (["-i", "x", "--set", "sampling.logit_bias=5+inf"], "option 'sampling.logit_bias'"),
    (["-i", "x", "--stop", ""], "option '--stop': expected a text that is not empty"),
    (["-i", "x", "--verbose=1"], "option '--verbose' takes no value"),
    (["-i"], "option '-i' needs a value (TEXT)"),
    (["-i", "x", "-f", "y"], "input comes from one place"),
    (["-i", "x", "another.bin"], "'another.bin' is one argument too many"),
    ([], "mode completion needs input"),
    (["-m", "perplexity"], "mode perplexity needs input"),
    (["-m", "p", "-i", "x"], "mode 'p' is ambiguous: perplexity or passkey"),
    (["-m", "speak"], "unknown mode 'speak'"),
    (["-m", ""], "unknown mode ''"),
    (
        ["-m", "throughput", "--temp", "1"],
        "option '--temp' does not belong to mode throughput (only to completion, chat, serve)",
    ),
    (["-m", "throughput", "-n", "1,2,"], "option '-n'"),
    (["-m", "throughput", "-n", "1" + ",1" * 16], "option '-n': expected at most 16 numbers"),
    (["-m", "throughput", "-p", "0", "-n", "0"], "nothing to time"),
    (
        ["-m", "throughput", "-p", "9", "-n", "0", "--depth", "9", "-T", "10"],
        "needs a context of 18, and --ctx says 10",
    ),
    (["-i", "x", "--depth", "3"], "option '--depth' does not belong to mode completion (only to throughput)"),
    (["-i", "x", "--set", "perplexity.stride=3"], "setting 'perplexity.stride=3' does not belong to mode completion"),
    (["-i", "x", "--pieces"], "option '--pieces' does not belong to mode completion (only to tokenize)"),
    (["-m", "chat", "--template-set", "enable_thinking"], "expected NAME=VALUE, found 'enable_thinking'"),
    (["-m", "chat", "--template-set", "=false"], "expected NAME=VALUE, found '=false'"),
    (
        ["-m", "perplexity", "-i", "x", "--ctx", "8", "--set", "perplexity.stride=9"],
        "setting 'perplexity.stride': 9 is longer than the window",
    ),
    (
        ["-m", "perplexity", "-i", "x", "--ctx", "8", "--set", "perplexity.decode_from=8"],
        "perplexity.decode_from: found 8, expected less",
    ),
    (
        ["-m", "passkey", "-n", "5", "--set", "passkey.position=6"],
        "setting 'passkey.position': 6 is past the 5 junk lines",
    ),
    (["-i", "x", "--chunk", "9"], "unknown option '--chunk' (--set machine.chunk=N)"),
    (["-i", "x", "--presence-penalty=1"], "unknown option '--presence-penalty' (--set sampling.presence_penalty=X)"),
    (["-i", "x", "--topk", "9"], "unknown option '--topk' (did you mean --top-k? yalm --help lists them)"),
    (["-m", "tokenize", "-i", "x", "--set", "sparq.k=8"], "setting 'sparq.k=8': mode tokenize has none of that name"),
    (["-i", "x", "--nothing"], "unknown option '--nothing' (yalm --help lists them; --set help lists rarer ones)"),
    (["--info"], "unknown option '--info' (these are modes: -m info"),
    (["-i", "x", "--set", "machine.pin=1"], "option 'machine.pin': expected one of off,on, found '1'"),
    (["-m", "info", "-i", "x"], "option '-i' does not belong to mode info"),
    (["-m", "info", "-o", "csv"], "option '-o': expected one of text,json"),
    (["-m", "throughput", "-"], "mode throughput reads no text"),
    (["-i", "x", "--attention", "sparks"], "option '--attention': expected one of dense,sparq"),
    (["-i", "x", "--attention-ratio", "1/0"], "option '--attention-ratio': expected a fraction, as 1/8 or 0.125"),
    (["-i", "x", "--attention-ratio", "2"], "option '--attention-ratio': expected a fraction, as 1/8 or 0.125"),
    (["-i", "x", "--attention-ratio", "1/"], "option '--attention-ratio': expected a fraction, as 1/8 or 0.125"),
    (["-i", "x", "--set", "throughput.fill=random"], "setting 'throughput.fill=random' does not belong to mode"),
    (["-m", "throughput", "--set", "throughput.fill=x"], "option 'throughput.fill': expected one of prefill,random"),
    (["-m", "throughput", "--throughput.fill", "random"], "unknown option '--throughput.fill'"),
    (["-i", "x", "--set", "sparq.cops=int8"], "setting 'sparq.cops=int8': expected KEY=VALUE with a key that"),
    (["-i", "x", "--set", "sparq.copy=fp32"], "setting 'sparq.copy=fp32': expected one of int8,fp16,q4"),
    (
        ["-i", "x", "--attention", "sparq", "--set", "sparq.r=65"],
        "sparq.r: found 65, expected at most the model's head_dim, 64",
    ),
]


@pytest.mark.parametrize("args, message", USAGE, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_usage_errors(program, args, message):
    assert message in program.fails(2, *args)


def test_no_arguments(bare):
    done = bare()
    assert done.returncode == 2 and b"no model: yalm MODEL" in done.stderr and done.stdout == b""


def test_help_describes_every_option(bare):
    done = bare("--help")
    text = done.stdout.decode()
    assert done.returncode == 0 and done.stderr == b""
    assert max(map(len, text.splitlines())) <= 80
    source = (ROOT / "src/cli/option_table.c").read_text(encoding="utf-8")
    rows = re.findall(r'^    \{"\w+", "\w*", "([^",]+)', source, flags=re.M)
    assert len(rows) > 45
    for name in rows:
        assert re.search(rf"^  (-\w, )?--{name}\b[^\n]*(  |\n {{31}})\S", text, flags=re.M), name
    assert bare("-h").stdout == done.stdout
    assert bare("nothing.bin", "-n", "5", "--help").stdout == done.stdout


def test_help_names_what_the_parser_takes(bare, program, tmp_path, monkeypatch):
    """Each long option of --help is known to the parser; each example uses known options."""
    monkeypatch.chdir(tmp_path)  # --session writes a file
    for name in sorted(set(re.findall(r"--[a-z][a-z-]+", bare("--help").stdout.decode()))):
        if name in ("--help", "--version"):
            continue
        text = program(name, "1", "-m", "completion", "-i", "x", "-n", "0").stderr.decode()
        assert "unknown option" not in text, name


def test_help_shows_the_defaults(bare):
    text = bare("--help").stdout.decode()
    for shown in ("(256)", "(0.8)", "(40)", "(0.95)", "(0.05)", "(512)", "(128)"):
        assert shown in text


def test_set_help_lists_the_keys(bare, program):
    done = bare("--set", "help")
    assert done.returncode == 0 and program.ok("-m", "serve", "--set", "help") == done.stdout
    text = done.stdout.decode()
    for source, pattern in (
        ("src/cli/option_table.c", r'"([a-z]+\.\w+)"'),
        ("src/engine/settings.c", r'^    \{"([a-z_.]+)", AT'),
    ):
        keys = re.findall(pattern, (ROOT / source).read_text(encoding="utf-8"), flags=re.M)
        assert len(keys) > 10 and [key for key in keys if key not in text] == []


def test_version(bare):
    done = bare("--version")
    assert done.returncode == 0
    assert re.match(rb"yalm \d+\.\d+\.\d+ \(commit \S+, .*cpu: .*cuda: .*\)\n$", done.stdout)


def test_a_lesser_instruction_set_by_the_environment(program, isas):
    """As if the machine had no more: nothing better can be had then, by no option."""
    how = ("-i", "The fox", "-n", "3", "-d", "cpu")
    for isa in isas:
        assert f", {isa}, context".encode() in program(*how, env={"YALM_ISA": isa}).stderr
    env = {"YALM_ISA": "scalar"}
    if len(isas) > 1:
        refused = program.fails(2, *how, "--set", f"machine.isa={isas[-1]}", env=env)
        assert f"isa: found '{isas[-1]}', this machine has: scalar" in refused
    assert "YALM_ISA: found 'sse', this machine has: " in program.fails(2, *how, env={"YALM_ISA": "sse"})


def test_last_one_wins_and_attached_values(program):
    one = program.ok("-i", "The fox", "-n", "9", "-n", "3", "--temp", "0", "-q")
    assert one == program.ok("-iThe fox", "-n3", "--temp=0", "--no-stats")
    assert one == program.ok("--prompt=The fox", "--predict", "3", "--temperature", "0", "--quiet")


def test_after_two_dashes_nothing_is_an_option(bare):
    done = bare("--", "-m", "-i")
    assert done.returncode == 2 and b"'-i' is one argument too many (the model is '-m'" in done.stderr
