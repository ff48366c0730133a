"""A chat as a person at a terminal has it: what begins one, keys, pasted and early words, lines, history."""

import json
import os
import re
import signal
import termios

import pytest
from harness import HANG
from terminals import Terminal

GREEDY = ("--temp", 0, "-n", 20)
SLOW = ("--temp", 0, "--set", "text.ignore_eos=on", "-T", 100000)


def talk(program, *args, **more):
    terminal = Terminal(program, *args, **more)
    terminal.until("> $")
    return terminal


def leave(terminal):
    terminal.type("\x04")
    terminal.ends(0)


def saved(terminal, file):
    """The conversation so far: (role, content) of each message."""
    terminal.type(f"/save {file}\n")
    terminal.until(r"messages\r\n.*> $")
    return [(m["role"], m["content"]) for m in json.loads(file.read_text())["messages"]]


def test_a_model_alone_talks(chatty, tmp_path):
    terminal = talk(chatty, chatty.model, *GREEDY, bare=True)
    terminal.type("Hi\n")
    terminal.until(r"\n> $")
    leave(terminal)


def test_a_model_alone_that_cannot(program):
    terminal = Terminal(program, program.model, bare=True)
    assert "this model has no chat template" in terminal.until(r"template.*\r\n")
    terminal.ends(2)


def test_one_answer(chatty, tmp_path):
    asked = chatty.ok("-m", "chat", *GREEDY, "-q", stdin=b"The king\n")
    assert chatty.ok("-m", "chat", "-i", "The king", *GREEDY, "-q") == asked
    (tmp_path / "text").write_text("The king\n")
    assert chatty.ok("-m", "chat", "-f", tmp_path / "text", *GREEDY, "-q") == asked
    assert chatty.ok("-m", "chat", "-i", "-", *GREEDY, "-q", stdin=b"The king\n") == asked
    assert chatty.ok("-m", "chat", "-e", "-i", r"The\x20king", *GREEDY, "-q") == asked
    assert chatty.ok("-m", "chat", "-i", "/help", *GREEDY, "-q").strip() != b""
    assert "the message is empty" in chatty.fails(2, "-m", "chat", "-i", "")
    assert "the message: expected UTF-8" in chatty.fails(2, "-m", "chat", "-f", "-", stdin=b"\xff")


def test_letters_without_a_locale(chatty, tmp_path):
    terminal = talk(chatty, *GREEDY, env={"LC_ALL": "C"})
    terminal.type("a café\n")
    terminal.until("> $")
    assert saved(terminal, tmp_path / "talk")[0] == ("user", "a café")
    leave(terminal)


def test_pasted_lines_are_one_message(chatty, tmp_path):
    terminal = talk(chatty, *GREEDY)
    terminal.type("And: \x1b[200~one\rtwo\t\x1b[31m\rthree\r\x1b[201~")
    terminal.until("three")
    terminal.type("\n")
    terminal.until(r"\n> $")
    assert saved(terminal, tmp_path / "talk.json")[0] == ("user", "And: one\ntwo\t[31m\nthree")
    leave(terminal)


def test_what_is_typed_early_waits(chatty, tmp_path):
    """It is not shown within the answer, and is the next message."""
    terminal = talk(chatty, *SLOW)
    terminal.type("The king\n")
    terminal.until(r"king\r\n(.|\n)*\w+ \w+ \w+")
    terminal.type("And the xyzzy?\n")
    terminal.until(r"(\w+\W+){30}")
    os.kill(terminal.run.pid, signal.SIGINT)
    text = terminal.until(r"stopped\)\r\n(.|\n)*> .*xyzzy\?\r\n")
    assert "xyzzy" not in text[: text.index("(stopped)")]
    terminal.until(r"(\w+\W+){3}")
    terminal.type("\x03")
    terminal.until(r"stopped\)\r\n(.|\n)*> $")
    assert [message for message in saved(terminal, tmp_path / "talk.json") if message[0] == "user"] == [
        ("user", "The king"),
        ("user", "And the xyzzy?"),
    ]
    leave(terminal)


def test_lines_break_between_words(chatty):
    plain = chatty.ok("-m", "chat", "--temp", 0, "-n", 60, "-q", stdin=b"The king\n").decode()
    terminal = talk(chatty, "--temp", 0, "-n", 60, "-q", columns=22)
    terminal.type("The king\n")
    lines = terminal.until(r"\n> $").replace("\r", "").split("\n")[1:-1]
    assert max(map(len, plain.split("\n"))) > 22 >= max(map(len, lines))
    assert "\n".join(lines).split() == plain.split()
    leave(terminal)


def test_tab_completes_commands(chatty):
    terminal = talk(chatty, *GREEDY)
    terminal.type("/un\t")
    terminal.until("do $")
    terminal.type("\x15/s\t")
    assert re.search(r"/system +/save +/stats", terminal.until(r"stats(.|\n)*> .*/s$"))
    terminal.type("\x15no\tcommand\x15")
    leave(terminal)


@pytest.mark.parametrize("word", ["/quit", "/exit", "/bye"])
def test_words_that_end(chatty, word):
    terminal = talk(chatty, *GREEDY)
    terminal.type(word + "\n")
    terminal.ends(0)


def test_commands_say_what_they_did(chatty):
    terminal = Terminal(chatty, *GREEDY)
    assert "(/? lists commands, ^D ends)" in terminal.until("> $")
    for command, answer in (
        ("Hi", ""),
        ("/undo", r"\(your last message and its answer are taken back\)"),
        ("/system Be brief.", r"\(another system message\)"),
        ("/clear", r"\(begun anew\)"),
        ("/?", "/reset /clear +begin anew"),
    ):
        terminal.type(command + "\n")
        terminal.until(answer + r"(.|\n)*\n.*> $")
    terminal.type("\x04")
    terminal.until(r"\^D\r\n$")  # the shell's prompt has a line of its own
    terminal.ends(0)


def test_history_lasts(chatty, tmp_path):
    state = tmp_path / "state"
    env = {"XDG_STATE_HOME": str(state)}
    terminal = talk(chatty, *GREEDY, env=env)
    for message in (r"a\b", "\x1b[200~two\rlines\x1b[201~"):
        terminal.type(message + "\n")
        terminal.until(r"\n> $")
    leave(terminal)
    file = state / "yalm/history"
    assert file.read_text() == "a\\\\b\ntwo\\nlines\n" and file.stat().st_mode & 0o777 == 0o600
    file.write_text("old\n" * 2000 + file.read_text())
    terminal = talk(chatty, *GREEDY, env=env)
    assert len(file.read_text().splitlines()) == 1000 and [path.name for path in file.parent.iterdir()] == ["history"]
    terminal.type("\x1b[A")
    terminal.until("two(.|\n)*lines")
    terminal.type("\x1b[A")
    terminal.until(r"a\\b")
    terminal.type("\x15")
    leave(terminal)


def test_history_that_cannot_be_kept(chatty, tmp_path):
    (tmp_path / "file").write_text("")
    terminal = talk(chatty, *GREEDY, env={"XDG_STATE_HOME": str(tmp_path / "file")})
    for warned in (True, False):
        terminal.type("Hi\n")
        words = terminal.until(r"\n> $")
        assert ("(what you type is not kept for later runs: Not a directory)" in words) == warned
    leave(terminal)


def test_history_that_never_ends(chatty, tmp_path):
    folder = tmp_path / "yalm"
    folder.mkdir()
    os.mkfifo(folder / "history")
    terminal = talk(chatty, *GREEDY, env={"XDG_STATE_HOME": str(tmp_path)})
    terminal.type("Hi\n")
    assert "is not kept for later runs: " in terminal.until(r"\n> $")
    leave(terminal)


def test_history_of_a_huge_message(chatty, tmp_path):
    """An editor of lines takes minutes to draw it."""
    (tmp_path / "yalm").mkdir()
    (tmp_path / "yalm/history").write_text("one\n" + "x" * 3_000_000 + "\n")
    terminal = talk(chatty, *GREEDY, env={"XDG_STATE_HOME": str(tmp_path)})
    terminal.type("\x1b[A")
    terminal.until("one")
    terminal.type("\x15")
    leave(terminal)


def test_a_paste_without_an_end(chatty):
    terminal = talk(chatty, *GREEDY)
    terminal.type("\x1b[200~hello")
    terminal.type("\x03")
    terminal.until(r"\n.*> $")
    leave(terminal)


def test_half_a_character(chatty, tmp_path):
    terminal = talk(chatty, *GREEDY)
    os.write(terminal.master, b"Hi \xc3\n")
    terminal.until(r"\n> $")
    assert saved(terminal, tmp_path / "talk")[0] == ("user", "Hi \ufffd")
    leave(terminal)


def test_a_terminal_behind_a_signal(chatty):
    terminal = talk(chatty, *GREEDY)
    terminal.run.send_signal(signal.SIGTERM)
    assert terminal.run.wait(timeout=HANG) == -signal.SIGTERM
    echo = termios.ECHO | termios.ICANON | termios.ISIG
    assert termios.tcgetattr(terminal.master)[3] & echo == echo
    os.close(terminal.master)


def test_a_window_that_changes_its_size(chatty):
    terminal = talk(chatty, *GREEDY)
    terminal.type("word " * 10)
    terminal.until("(word ){10}")
    terminal.resize(40)
    terminal.run.send_signal(signal.SIGWINCH)
    terminal.until("(word ){3}")  # drawn again
    terminal.type("\n")
    terminal.until(r"\n> $")
    leave(terminal)


def test_an_answer_that_fills_the_context(chatty):
    fixed = ("-m", "chat", "-i", "The king", "--temp", 0, "--set", "text.ignore_eos=on")
    told = chatty(*fixed, "-T", 48).stderr.decode()
    assert (
        "(the context of 48 tokens is full, and the answer ends here: -T N at the start makes it larger, up to 2048)"
        in told
    )
    assert "is full" not in chatty(*fixed, "-T", 48, "-q").stderr.decode()
    assert "is full" not in chatty(*fixed, "-T", 48, "-n", 5).stderr.decode()


def test_a_terminal_is_as_it_was(chatty):
    """What is typed early is not shown while an answer comes; after the program, again."""
    terminal = talk(chatty, *SLOW)
    terminal.type("The king\n")
    terminal.until(r"king\r\n(.|\n)*\w+ \w+ \w+")
    assert not termios.tcgetattr(terminal.master)[3] & termios.ECHO
    terminal.type("\x03")
    terminal.until(r"stopped\)\r\n(.|\n)*> $")
    terminal.type("/quit\n")
    terminal.until(r"quit\r\n")
    assert terminal.run.wait(timeout=HANG) == 0
    assert termios.tcgetattr(terminal.master)[3] & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON
    os.close(terminal.master)


def test_a_text_is_continued_and_that_is_said(chatty):
    """Who asks a question so, is told how to have it answered."""
    told = "(continues the text; -m chat -i TEXT asks the model)"
    for more, expected in ((), True), (("-m", "completion"), False), (("-q",), False):
        terminal = Terminal(chatty, chatty.model, "-i", "The king", "-n", "3", *more, bare=True)
        assert (told in terminal.until(r"The king.*\r\n")) == expected
        terminal.ends(0)
    assert told not in chatty("-i", "The king", "-n", "3").stderr.decode()
