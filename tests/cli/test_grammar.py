"""--grammar: completions and answers of a form."""

import pytest


@pytest.fixture
def grammar(tmp_path):
    def write(text):
        (tmp_path / "grammar").write_text(text)
        return ("--grammar", tmp_path / "grammar")

    return write


def test_only_texts_of_the_grammar_come(program, grammar):
    fields = ("-i", "Well?", "--no-echo", "-n", "60")
    for seed in range(3):
        options = grammar('root ::= " "? ("yes" | "no") " "? [0-9]{3} "!"')
        text = program.ok(*fields, "--temp", "3", "--seed", seed, *options, "-q").decode().replace(" ", "")
        assert text[:-4] in ("yes", "no") and text[-4:-1].isdigit() and text[-1] == "!"
    assert b"stopped by: end of" in program(*fields, *grammar('root ::= "yes"')).stderr


def test_answers_of_a_grammar(chatty, grammar):
    script = b"Is it?\nAnd now?\n/stats\n"
    done = chatty("-m", "chat", *grammar('root ::= "yes" | "no"'), stdin=script)
    assert set(done.stdout.decode().split("\n")) <= {"yes", "no", ""} and done.stdout.count(b"\n") == 2
    assert b"stopped by: end of the grammar" in done.stderr
    assert "grammar, line 1" in chatty.fails(2, "-m", "chat", *grammar("root ::= x"), stdin=script)


def test_grammars_that_are_no_such(program, grammar):
    assert "grammar, line 1: rule 'x'" in program.fails(2, "-i", "x", *grammar("root ::= x"))
    assert "No such file" in program.fails(1, "-i", "x", "--grammar", "/nothing")
