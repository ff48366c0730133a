"""Mode chat: turns, commands, what is refused, scripts and terminals."""

import json
import os
import re
import signal
import subprocess
import time

import pytest
from harness import HANG
from terminals import Terminal

GREEDY = ("--temp", 0, "-n", 20)


def chat(program, script, *args, **more):
    return program("-m", "chat", *GREEDY, *args, stdin=script.encode(), **more)


def answers(program, script, *args):
    """Standard output of a script that must succeed."""
    done = chat(program, script, "-q", *args)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def completed(program, messages, opening="assistant:", *args):
    """What the model makes of the rendered conversation in mode completion, as chat shows it."""
    text = "<s>" + "".join(f"{role}: {content}\n" for role, content in messages) + opening
    out = program.ok(
        "-i", text, "--set", "text.special=on", "--set", "text.bos=off", "--no-echo", "-q", *GREEDY, *args
    ).decode()
    return out[1:] if out.startswith(" ") else out  # which the tokenizer begins a text with


def shown(text):
    return text if text.endswith("\n") else text + "\n"


def test_turns_are_completions_of_the_rendered_conversation(chatty):
    one = completed(chatty, [("user", "The king")])
    two = completed(chatty, [("user", "The king"), ("assistant", one), ("user", "And the queen?")])
    assert answers(chatty, "The king\nAnd the queen?\n") == shown(one) + shown(two)


def test_system_message(chatty):
    one = completed(chatty, [("system", "Tell of cats."), ("user", "Hi")])
    assert answers(chatty, "Hi\n", "--system", "Tell of cats.") == shown(one)
    assert answers(chatty, "/system Tell of cats.\nHi\n") == shown(one)
    assert answers(chatty, "/system\nHi\n", "--system", "x") == shown(completed(chatty, [("user", "Hi")]))
    assert answers(chatty, "x\n/reset\nHi\n", "--system", "Tell of cats.").endswith("\n" + shown(one))


def statistics(words):
    found = re.findall(r"prefill: (\d+) tokens in [\d.]+ s \((\d+) were known\)", words)
    return [(int(new), int(known)) for new, known in found]


def test_nothing_is_evaluated_twice(chatty):
    """A second turn reads the end of the answer before it, and what is new: not what the session has seen."""
    done = chat(chatty, "The king and the queen lived in a castle\n/stats\nAnd then?\n/stats\n")
    (first, none), (second, known) = statistics(done.stderr.decode())
    assert none == 0 and known >= first + 19 and 3 < second < 25


def test_undo_goes_back_without_reading_again(chatty):
    done = chat(chatty, "The king\nAnd the queen?\n/undo\nAnd the queen?\n/stats\n")
    lines = done.stdout.decode()
    one = completed(chatty, [("user", "The king")])
    two = completed(chatty, [("user", "The king"), ("assistant", one), ("user", "And the queen?")])
    assert lines == shown(one) + 2 * shown(two)
    assert statistics(done.stderr.decode())[0][0] == 1  # the last token, for its logits


def test_regen(chatty):
    one = shown(completed(chatty, [("user", "The king")]))
    assert answers(chatty, "The king\n/regen\n") == 2 * one
    drawn = answers(chatty, "The king\n/regen\n", "--temp", 1.5, "-s", 3)
    assert drawn == answers(chatty, "The king\n/regen\n", "--temp", 1.5, "-s", 3)
    assert drawn[: len(drawn) // 2] != drawn[len(drawn) // 2 :]


def test_save_and_load(chatty, tmp_path):
    file = tmp_path / "talk.json"
    answers(chatty, f"The king\n/save {file}\n", "--system", "Be ☀.")
    saved = json.loads(file.read_text(encoding="utf-8"))["messages"]
    assert [m["role"] for m in saved] == ["system", "user", "assistant"] and saved[0]["content"] == "Be ☀."
    going_on = answers(chatty, f"/load {file}\nAnd?\n")
    assert going_on == answers(chatty, "The king\nAnd?\n", "--system", "Be ☀.")[-len(going_on) :]
    assert [name.name for name in tmp_path.iterdir()] == ["talk.json"]


def test_several_lines(chatty):
    one = shown(completed(chatty, [("user", "The king\nand\nthe queen")]))
    assert answers(chatty, "The king\\\nand\\\nthe queen\n") == one
    assert answers(chatty, '"""The king\nand\nthe queen"""\n') == one
    assert answers(chatty, '"""\nThe king\nand\nthe queen"""\n') == one
    assert answers(chatty, '"""The king"""\n') == shown(completed(chatty, [("user", "The king")]))
    assert answers(chatty, "The king") == shown(completed(chatty, [("user", "The king")]))
    assert answers(chatty, "\n  \n//save\n") == shown(completed(chatty, [("user", "/save")]))
    assert answers(chatty, "") == ""


def test_stop_strings_and_variables(chatty):
    whole = completed(chatty, [("user", "The king")])
    word = whole.split()[3]
    assert answers(chatty, "The king\n", "-r", word) == shown(whole[: whole.index(word)])
    other = completed(chatty, [("user", "The king")], "Once")
    assert answers(chatty, "The king\n", "--template-set", "opening=Once") == shown(other)
    assert answers(chatty, "The king\n", "--template-set", 'opening="Once"') == shown(other)


def test_reasoning_is_hidden_where_it_is_opened_by_the_template(chatty):
    opening = ("--template-set", "opening=<think>")
    assert (
        answers(chatty, "Hi\n", *opening).strip()
        and answers(chatty, "Hi\n", *opening, "--hide-reasoning").strip() == ""
    )


def test_reasoning_in_channels(thinker, tmp_path):
    """Told from the answer, and kept apart from it: the template refuses a message with channels."""
    assert answers(thinker, "Hi\nReally?\n") == 2 * "<think>\nIs it?\n</think>\n\nIt is.\n"
    assert answers(thinker, "Hi\n", "--hide-reasoning") == "It is.\n"
    file = tmp_path / "talk.json"
    answers(thinker, f"Hi\n/save {file}\n")
    said = json.loads(file.read_text())["messages"][1]
    assert said == {"role": "assistant", "content": "It is.", "reasoning_content": "Is it?"}
    assert answers(thinker, f"/load {file}\nReally?\n", "--hide-reasoning") == "It is.\n"


# ---------------------------------------------------------------- refusals


def fails(program, code, script, *args):
    done = chat(program, script, "-q", *args)
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("yalm: ")]
    assert done.returncode == code and len(lines) == 1, (done.returncode, done.stderr)
    return lines[0]


def test_models_that_cannot_chat(program, ids_only, yalm, fable, tmp_path):
    assert "this model has no chat template" in program.fails(2, "-m", "chat")
    assert "the model has no tokenizer" in ids_only.fails(2, "-m", "chat")


def test_a_script_ends_with_its_first_mistake(chatty, tmp_path):
    assert "/nope is no command (/help lists them" in fails(chatty, 2, "/nope\nHi\n")
    assert "/undo: nothing has been said yet" in fails(chatty, 2, "/undo\n")
    assert "/regen: nothing has been said yet" in fails(chatty, 2, "/regen\n")
    assert "/save FILE: the file is missing" in fails(chatty, 2, "/save\n")
    assert "No such file" in fails(chatty, 1, f"/load {tmp_path / 'missing'}\n")
    assert "No such file" in fails(chatty, 1, f"/save {tmp_path / 'no' / 'where'}\n")
    (tmp_path / "bad.json").write_text('{"messages": [{"role": "user"}]}')
    assert 'expected {"messages": [{"role": ' in fails(chatty, 2, f"/load {tmp_path / 'bad.json'}\n")
    (tmp_path / "tool.json").write_text('{"messages": [{"role": "tool", "content": "x"}]}')
    line = fails(chatty, 2, f"/load {tmp_path / 'tool.json'}\nHi\n")
    assert "chat template, line 2: there are no tools here" in line


def test_what_is_typed_must_be_text(chatty, tmp_path):
    def refused(script):
        done = chatty("-m", "chat", "-q", stdin=script)
        assert (done.returncode, done.stdout) == (2, b"")
        return done.stderr.decode()

    assert "the message: expected UTF-8, found byte 0xff at byte 3" in refused(b"Hi \xff there\n")
    assert "the message: expected UTF-8, found byte 0x00 at byte 2" in refused(b"Hi\0there\n")
    assert "the message: expected UTF-8, found byte 0xe4" in refused(b"/system K\xe4se\n")
    (tmp_path / "latin.json").write_bytes(b'{"messages": [{"role": "user", "content": "K\xe4se"}]}')
    assert "latin.json: not JSON: a byte that is not UTF-8, at byte" in refused(
        f"/load {tmp_path}/latin.json\n".encode()
    )


def test_lines_that_end_as_on_windows(chatty):
    assert answers(chatty, "The king\r\n/quit\r\n") == answers(chatty, "The king\n")


def test_an_answer_that_is_cut_within_a_character(chatty, tmp_path):
    """The model's own bytes need not be text; the conversation goes on all the same."""
    saved = tmp_path / "saved.json"
    script = f"Hi\nAnd?\n/save {saved}\n"
    done = chatty(
        "-m", "chat", "-q", "-n", 2, "--set", "sampling.logit_bias=243+100", stdin=script.encode()
    )  # the byte 0xf0
    assert done.returncode == 0 and done.stdout == b"\xf0\xf0\n" * 2, done.stderr
    contents = [message["content"] for message in json.loads(saved.read_text())["messages"]]
    assert contents == ["Hi", "\ufffd\ufffd", "And?", "\ufffd\ufffd"]


def test_what_is_no_file_is_written_to_and_stays(chatty, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    answers(chatty, f"Hi\n/save {pipe}\n")
    assert json.loads(os.read(reader, 65536))["messages"][0]["content"] == "Hi"
    os.close(reader)
    assert pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_a_context_that_is_full(chatty):
    line = fails(chatty, 2, "word " * 80 + "\n", "-T", 64)
    assert re.search(r"the conversation has \d+ tokens, and the context holds 64: /undo .* /reset .* -T N", line)
    done = chat(chatty, "Once upon a time\n/stats\n", "-T", 48, "-n", 1000, "--set", "text.ignore_eos=on")
    words = done.stderr.decode()
    assert done.returncode == 0 and "context: 48 of 48 tokens" in words and "stopped by: full context" in words


def test_one_answer_past_the_context(chatty):
    """There is nobody to type /undo."""
    line = chatty.fails(2, "-m", "chat", "-i", "word " * 80, "-T", 64)
    assert line.endswith("and the context holds 64: -T N makes it larger")


def test_pipes_with_nobody_at_the_other_end(chatty, bare, tmp_path):
    """Each gets a line; none is waited for. One that has been written to is read."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ask = ("-m", "chat", "-q", *GREEDY, "-n", 3, "-i", "Hi")
    assert f"{pipe}: a pipe that nobody writes to" in chatty.fails(1, *ask, "--grammar", pipe)
    assert f"{pipe}: not a regular file" in chatty.fails(2, *ask, "--session", pipe)
    assert f"{pipe}: a pipe that nobody reads" in fails(chatty, 1, f"Hi\n/save {pipe}\n")
    assert f"{pipe}: a pipe that nobody writes to" in fails(chatty, 1, f"/load {pipe}\n")
    ours, theirs = os.pipe()  # as the shell's <(...) makes one
    os.write(theirs, b'root ::= "yes"')
    os.close(theirs)
    assert bare(chatty.model, *ask, "--grammar", f"/dev/fd/{ours}", pass_fds=(ours,)).stdout == b"yes\n"
    os.close(ours)


def test_a_sliding_window_is_read_again(windowed):
    """Where the cache no longer holds what an earlier position saw, the conversation is read from its beginning."""
    options = ("--set", "machine.chunk=8", "-n", 60, "--set", "text.ignore_eos=on")
    fresh = answers(windowed, "A cat\n", *options)
    done = chat(windowed, "The king and the queen\n/undo\nA cat\n/stats\n", *options)
    assert done.returncode == 0 and done.stdout.decode().endswith("\n" + fresh)
    assert statistics(done.stderr.decode())[0][1] == 0


def test_options_that_are_no_business_of_chat(chatty):
    assert "does not belong to mode chat" in chatty.fails(2, "-m", "chat", "--no-echo")
    assert "does not belong to mode completion" in chatty.fails(2, "-i", "Hi", "--system", "x")
    assert "option '--temp'" in chatty.fails(2, "-m", "chat", "--temp", "-3")


# ---------------------------------------------------------------- terminals


def test_a_talk_on_a_terminal(chatty):
    terminal = Terminal(chatty, *GREEDY)
    terminal.until("> $")
    terminal.type("The king\n")
    one = completed(chatty, [("user", "The king")])
    text = terminal.until(r"\n> $")
    assert one.strip().replace("\n", "\r\n") in text
    terminal.type("/nope\n")
    assert "/nope is no command" in terminal.until(r"\n.*> $")
    terminal.type("/help\n")
    assert "/regen" in terminal.until(r"answer\.\r\n.*> $")
    terminal.type("two\\\n")
    terminal.until(r"\. $")
    terminal.type("lines\n")
    terminal.until(r"\n> $")
    terminal.type("\x04")
    terminal.ends(0)


def test_interrupt_stops_an_answer(chatty):
    terminal = Terminal(chatty, "--temp", 0, "--set", "text.ignore_eos=on", "-T", 100000)
    terminal.until("> $")
    terminal.type("The king\n")
    terminal.until(r"king\r\n(.|\n)*\w+ \w+ \w+")
    terminal.type("\x03")
    terminal.until(r"\(stopped\)\r\n.*> $")
    terminal.type("/stats\n")
    assert "stopped by: interrupt" in terminal.until(r"stopped by.*\r\n.*> $")
    terminal.type("And then?\n")
    terminal.until(r"then\?\r\n(.|\n)*\w+ \w+ \w+")
    terminal.type("\x03")
    terminal.until(r"\(stopped\)\r\n.*> $")
    terminal.type("\x03")
    assert "once more ends" in terminal.until(r"once more(.|\n)*> $")
    terminal.type("\x03")
    terminal.ends(130)


def test_an_answer_stays_where_no_other_comes(chatty, tmp_path):
    (tmp_path / "long.json").write_text(
        json.dumps({"messages": [{"role": "user", "content": "word " * 80}, {"role": "assistant", "content": "first"}]})
    )
    terminal = Terminal(chatty, "-T", 64)
    terminal.until("> $")
    for command, answer in ((f"/load {tmp_path}/long.json", "2 messages"), ("/regen", "the context holds 64")):
        terminal.type(command + "\n")
        terminal.until(answer + r"(.|\n)*> $")
    terminal.type(f"/save {tmp_path}/after.json\n")
    terminal.until(r"2 messages\r\n.*> $")
    terminal.type("\x04")
    terminal.ends(0)
    assert json.loads((tmp_path / "after.json").read_text()) == json.loads((tmp_path / "long.json").read_text())


def test_reasoning_is_dim_on_a_terminal(chatty):
    opening = ("--template-set", "opening=<think>")
    terminal = Terminal(chatty, *GREEDY, *opening)
    terminal.until("> $")
    terminal.type("Hi\n")
    assert re.search(r"\x1b\[2m(.|\n)*\x1b\[0m", terminal.until(r"\n> $"))
    terminal.type("\x04")
    terminal.ends(0)
    plain = Terminal(chatty, *GREEDY, *opening, env={"NO_COLOR": "1"})
    plain.until("> $")
    plain.type("Hi\n")
    assert "\x1b[2m" not in plain.until(r"\n> $")
    plain.type("\x04")
    plain.ends(0)


def test_interrupt_ends_a_script(chatty):
    run = subprocess.Popen(
        chatty.command("-m", "chat", "--temp", 0, "--set", "text.ignore_eos=on", "-T", 100000),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    run.stdin.write(b"The king\n")
    run.stdin.flush()
    begin = run.stdout.read(100)
    run.send_signal(signal.SIGINT)
    text, words = run.stdout.read(), run.stderr.read()  # communicate() would lose what read(100) has in its buffer
    assert run.wait(timeout=HANG) == 130 and len(begin) == 100 and text.endswith(b"\n") and b"yalm:" not in words


@pytest.mark.parametrize("script", ["Hi\n", "/help\n"])
def test_no_colours_and_no_prompts_in_a_pipe(chatty, script):
    done = chat(chatty, script, env={"NO_COLOR": ""})
    assert done.returncode == 0 and b"\033" not in done.stdout + done.stderr and not done.stdout.startswith(b">")


# ---------------------------------------------------------------- --session


def test_a_session_is_kept(chatty, tmp_path):
    file = tmp_path / "talk.session"
    talk = "The king and the queen lived in a castle\n"
    first = chat(chatty, talk + "/stats\n", "--session", file)
    again = chat(chatty, talk + "/stats\n", "--session", file)
    assert first.returncode == again.returncode == 0 and first.stdout == again.stdout
    (read, none), (little, known) = (statistics(done.stderr.decode())[0] for done in (first, again))
    assert none == 0 and little == 1 and known == read - 1
    assert b"tokens that need not be read again" in again.stderr
    assert [name.name for name in tmp_path.iterdir()] == ["talk.session"]


def test_a_completion_is_kept(program, tmp_path):
    file = tmp_path / "text.session"
    prompt = "The king and the queen lived in a castle"
    options = ("--no-echo", *GREEDY, "--session", file)
    whole = program.ok("-i", prompt, *options)
    done = program("-i", prompt, *options)
    assert done.stdout == whole and b"prefill: 1 tokens" in done.stderr
    longer = program("-i", prompt + whole.decode() + " and then", *options)
    assert re.search(rb"prefill: ([1-9]|1[0-9]) tokens", longer.stderr)
    assert longer.stdout == program.ok("-i", prompt + whole.decode() + " and then", "--no-echo", *GREEDY)


def test_what_was_read_before_an_interrupt_is_kept(program, tmp_path):
    file, ids = tmp_path / "text.session", tmp_path / "ids"
    ids.write_text("300 400 500 " * 10000)
    options = (
        "--no-echo",
        "-n",
        1,
        "-T",
        30000,
        "--set",
        "machine.isa=scalar",
        "--set",
        "machine.chunk=16",
        "--session",
        file,
    )
    command = program.command("--tokens", ids, *options)
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not file.exists():
        time.sleep(0.01)
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    _, words = run.communicate(timeout=HANG)
    read = int(re.search(rb"prefill: (\d+) tokens", words).group(1))
    assert run.returncode == 130 and 0 < read < 30000, words
    ids.write_text("300 400 500")
    again = program("--tokens", ids, *options)
    assert f"{read} tokens that need not be read again" in again.stderr.decode()


@pytest.mark.parametrize("speculate", ["off", "suffix"])
def test_what_goes_past_the_context_is_not_kept(program, tmp_path, speculate):
    """The file gets what there was before, and the text goes on as it does without one."""
    file = tmp_path / "text.session"
    prompt = "The king and the queen lived in a castle"
    options = ("-T", 64, "--temp", 0, "--speculate", speculate)
    endless = ("-i", prompt, *options, "--set", "text.ignore_eos=on", "-n", 150)
    done = program(*endless, "--session", file)
    assert done.returncode == 0, done.stderr
    assert done.stdout == program.ok(*endless)
    assert b"text.session: the first 64 tokens; what goes past the context is not kept" in done.stderr
    assert [name.name for name in tmp_path.iterdir()] == ["text.session"]
    again = program("-i", prompt, *options, "-n", 20, "--session", file)
    assert b"64 tokens that need not be read again" in again.stderr and b"prefill: 1 tokens" in again.stderr
    assert done.stdout.startswith(again.stdout) and len(again.stdout) > len(prompt) + 20


def test_a_session_whose_window_has_gone_by_is_read_again(windowed, tmp_path):
    """A prompt that leaves the kept one where the sliding window has been is read from its beginning."""
    file = tmp_path / "text.session"
    options = ("--no-echo", "--temp", "0", "-n", "8", "--set", "machine.chunk=8")
    begin = "Once upon a time there was a king who had a daughter, and she was so proud and so haughty withal"
    windowed.ok("-i", begin + " that no suitor was good enough for her.", *options, "--session", file)
    done = windowed("-i", begin[:60] + " cat", *options, "--session", file)
    assert done.returncode == 0, done.stderr
    assert done.stdout == windowed.ok("-i", begin[:60] + " cat", *options)


def test_a_session_that_does_not_fit(program, chatty, tmp_path):
    file = tmp_path / "text.session"
    program.ok("-i", "The king", *GREEDY, "--session", file)
    assert "a session of another model: remove the file" in fails(chatty, 2, "Hi\n", "--session", file)
    line = program.fails(2, "-i", "The king", "--session", file, "--kv", "int8")
    assert "a session with another --kv or --activations" in line
    assert "attention: 'sparq' keeps more" in program.fails(2, "-i", "x", "--session", file, "--attention", "sparq")
    file.write_bytes(file.read_bytes()[:-1])
    assert "truncated" in program.fails(2, "-i", "The king", "--session", file)
    file.unlink()
    assert "attention: 'sparq' keeps more" in program.fails(2, "-i", "x", "--session", file, "--attention", "sparq")
    assert "No such file" in program.fails(1, "-i", "x", "-n", "1", "--session", tmp_path / "no" / "x")
    assert not file.exists()
