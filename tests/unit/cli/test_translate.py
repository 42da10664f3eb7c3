"""Input and output of nmt-translate: files, pipes and terminals, with a model that returns capitals."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from shouting_translate import Scored, Shout, Shouter

from nmt.cli import prompt
from nmt.cli import translate as command
from nmt.cli.input_files import standard_input
from nmt.cli.prompt import Settings
from nmt.config import DecodingConfig, TranslateConfig
from nmt.decoding.translation import ScoredText, Translation
from nmt.documents import rows
from nmt.errors import UserError

SCRIPT = Path(__file__).with_name("shouting_translate.py")
PATIENCE = 120  # seconds; only a program that hangs takes longer
LONG_TOLD = "line 2: cut to 1,024 of 2,345 tokens (decoding.max_source_tokens)"


def shout(*scored: tuple[str, float]) -> Shout:
    return Shout(tuple(Scored(text, score) for text, score in scored), 1, 0)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\r\n\r\nb\r\r\n", ["a", "", "b\r"]),
        ("a\x0cb\x00\x1c\x85\u2028\u2029c\n🙂\n".encode(), ["a\x0cb\x00\x1c\x85\u2028\u2029c", "🙂"]),
        (b"x" * 200_000 + b"\ny", ["x" * 200_000, "y"]),
    ],
)
def test_lines_end_at_newlines_and_nowhere_else(content: bytes, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(content)
    with open(tmp_path / "text", "rb") as file:
        assert list(standard_input(file.fileno())) == lines


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04\x14\xff\n", "standard input: is an archive or a document, not text."),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "standard input: is an archive or a document, not text."),
        (b"a\nPK\x03\x04\xff\n", "standard input, line 2: not valid UTF-8 (byte 0xff)."),
    ],
)
def test_standard_input_that_is_not_text(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(content)
    with open(tmp_path / "text", "rb") as file, pytest.raises(UserError, match=re.escape(message)):
        list(standard_input(file.fileno()))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(command, "load_translator", lambda config: Shouter())
    return lambda **options: command.translate(TranslateConfig("m", **options))


def test_file_to_file(
    run: Callable[..., None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes("one\nlong two\r\n\n\x0c three\u2028four".encode())
    target.write_text("from an earlier run")
    monkeypatch.setattr(logging.getLogger("nmt"), "propagate", True)
    with caplog.at_level(logging.INFO, "nmt"):
        run(input=str(source), output=str(target))
    assert target.read_text("utf-8").split("\n") == ["ONE", "LONG TWO", "", "\x0c THREE\u2028FOUR", ""]
    assert caplog.messages[0] == LONG_TOLD
    assert caplog.messages[1].startswith("4 lines, 5 tokens, ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_numbers_that_translations_lack_are_one_line_of_the_log(
    run: Callable[..., None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "in").write_text("number\none\n" + "number\n" * 300)
    monkeypatch.setattr(logging.getLogger("nmt"), "propagate", True)
    with caplog.at_level(logging.INFO, "nmt"):
        run(input=str(tmp_path / "in"), output=str(tmp_path / "out"))
    assert len(caplog.messages) == 2
    assert caplog.messages[0] == (
        "numbers of 301 of 302 lines: their translations lack or change some. "
        "Lines: 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... (decoding.numbers)"
    )


def test_an_empty_file(run: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    run(input=str(tmp_path / "in"), output=str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == b""


def test_a_document(run: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "a.po").write_bytes(b'msgid "a dog"\r\nmsgstr ""\r\n')
    run(input=str(tmp_path / "a.po"), output=str(tmp_path / "b.po"))
    assert (tmp_path / "b.po").read_bytes() == b'#, fuzzy\r\nmsgid "a dog"\r\nmsgstr "A DOG"\r\n'
    run(input=str(tmp_path / "a.po"), output=str(tmp_path / "text"), format="text")
    assert (tmp_path / "text").read_bytes() == b'MSGID "A DOG"\nMSGSTR ""\n'
    (tmp_path / "a.po").write_bytes(b'msgid "a dog\n')
    with pytest.raises(UserError, match=r"a\.po:1: is not a string of PO"):
        run(input=str(tmp_path / "a.po"), output=str(tmp_path / "c.po"))
    assert not (tmp_path / "c.po").exists()


def test_output_through_a_link_keeps_the_link(run: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    run(input=str(tmp_path / "in"), output=str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "A\n"


def test_output_to_a_device_does_not_replace_it(run: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    run(input=str(tmp_path / "in"), output=str(tmp_path / "pipe"))
    assert os.read(reader, 100) == b"A\n"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input": "none"}, r"input=.*none: there is no such file"),
        ({"input": "folder"}, r"input=.*folder: is a folder"),
        ({"input": "latin1"}, r"latin1:2: not valid UTF-8"),
        ({"input": "good", "output": "folder"}, r"output=.*folder: is a folder"),
        ({"input": "good", "output": "none/out"}, r"output=.*none/out: there is no folder .*none"),
        (
            {"input": "good", "output": "a.gz"},
            r"a\.gz: the file would not be .* gzip > .*a\.gz\.$",
        ),
        ({"input": "good", "output": "a.zst"}, r"output=.*a\.zst: .* Give a name without \.zst\.$"),
        ({"input": "good", "output": "good"}, r"output=.*good: is also the input"),
        ({"input": "good", "output": "link"}, r"output=.*link: is also the input"),
        ({"input": "good", "output": "hard"}, r"output=.*hard: is also the input"),
    ],
)
def test_mistakes_with_files(
    run: Callable[..., None], options: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "good").write_text("a\n")
    (tmp_path / "link").symlink_to("good")
    (tmp_path / "hard").hardlink_to(tmp_path / "good")
    (tmp_path / "latin1").write_bytes(b"a\nGr\xfc\xdfe\n")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=message):
        run(**{key: str(tmp_path / name) for key, name in options.items()})
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "good").read_text() == "a\n"


def test_a_failure_leaves_nothing_half_written(
    run: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = iter([b"FIRST\n"])
    monkeypatch.setattr(rows.Lines, "write", lambda *_: next(written))  # StopIteration: a bug
    (tmp_path / "in").write_text("a\nb\n")
    (tmp_path / "out").write_text("old")
    with pytest.raises(StopIteration):
        run(input=str(tmp_path / "in"), output=str(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


def test_an_unknown_precision() -> None:
    with pytest.raises(UserError, match="precision=int8: must be one of auto, fp32, bf16, fp16"):
        command.load_translator(TranslateConfig("m", precision="int8"))


def test_alignments_have_a_line_for_each_output_line() -> None:
    translation = Translation((ScoredText("B A", -1.0, alignment=((1, 0), (0, 1))), ScoredText("", -2.0)))
    config = TranslateConfig("m", decoding=DecodingConfig(nbest=3, beam_size=3))
    assert command.formatted_alignments(translation, config, rows.Request("")) == b"1-0 0-1\n\n\n"
    assert rows.Lines(config).write(rows.Request(""), translation, 1).count(b"\n") == 3


# Tests with real processes


def start(*arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    environment = {**os.environ, "TERM": "dumb", "INPUTRC": os.devnull}
    return subprocess.Popen(
        [sys.executable, SCRIPT, "model_dir=m", *arguments],
        env=environment,
        start_new_session=True,
        **streams,
    )


def test_a_pipe_is_answered_line_by_line() -> None:
    process = start()
    for line, answer in [(b"one", b"ONE"), (b"long", b"LONG"), (b"", b""), (b"\xc3\xa4", b"\xc3\x84")]:
        assert answer_to(process, line) == answer
    rest, log = process.communicate(b"last", timeout=PATIENCE)
    assert (process.returncode, rest) == (0, b"LAST\n")
    assert f"warning: {LONG_TOLD}\n" in log.decode()
    assert "5 lines, 4 tokens, " in log.decode()


def test_a_redirected_file_is_read_from_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("header\none\ntwo")
    with open(tmp_path / "in", "rb", buffering=0) as file:
        file.seek(len("header\n"))
        written, log = start(stdin=file).communicate(timeout=PATIENCE)
    assert written == b"ONE\nTWO\n"
    assert b"2 lines" in log


def test_interrupt_while_waiting_for_a_line() -> None:
    process = start()
    assert answer_to(process, b"one") == b"ONE"
    process.send_signal(signal.SIGINT)
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"Traceback" not in log


@pytest.mark.parametrize(
    ("name", "status"),
    [
        *[("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129), ("SIGQUIT", 131)],
        *[("SIGUSR1", 138), ("SIGUSR2", 140), ("SIGXCPU", 152)],
    ],
)
def test_a_signal_leaves_no_output_file(name: str, status: int, tmp_path: Path) -> None:
    process = start(f"output={tmp_path / 'out'}")
    stdin, _ = streams_of(process)
    stdin.write(b"wait\n")
    stdin.flush()
    assert process.stderr is not None
    assert process.stderr.readline() == b"working\n"
    process.send_signal(signal.Signals[name])
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    assert log.decode().endswith(f"nmt-translate: stopped{'' if name == 'SIGINT' else f' ({name})'}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_ignored_signals_stay_ignored(number: int) -> None:
    """`nohup` ignores the first; the background jobs of a shell ignore the others."""
    process = start(preexec_fn=lambda: signal.signal(number, signal.SIG_IGN))
    assert answer_to(process, b"one") == b"ONE"
    process.send_signal(number)
    rest, _ = process.communicate(b"two\n", timeout=PATIENCE)
    assert (process.returncode, rest) == (0, b"TWO\n")


def test_output_to_a_process_substitution(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")
    command_line = f'"{sys.executable}" "{SCRIPT}" model_dir=m input="{tmp_path / "in"}"'
    (tmp_path / "go").write_text(f"{command_line} output=>(cat >'{tmp_path / 'out'}'; echo done) | cat")
    result = subprocess.run(["bash", str(tmp_path / "go")], capture_output=True, text=True)
    assert (result.stdout, (tmp_path / "out").read_text()) == ("done\n", "A\n"), result.stderr


def streams_of(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


def answer_to(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Writes a line to a process; returns the line that it writes next."""
    stdin, stdout = streams_of(process)
    stdin.write(line + b"\n")
    stdin.flush()
    return stdout.readline().removesuffix(b"\n")


class Terminal:
    """A pseudo-terminal and the text read from it; can wait for more text."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def expect(self, text: str, nudge: str = "") -> None:
        """Reads until `text` arrives; types `nudge` again in case the program missed it."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen!r}"
            if select.select([self.ours], [], [], 5)[0]:
                self.seen += os.read(self.ours, 1 << 16).decode()
            elif nudge:
                self.type(nudge)
        self.seen = self.seen.partition(text)[2]

    def converse(
        self, process: subprocess.Popen[bytes], *dialogue: tuple[str, str] | tuple[str, str, bytes]
    ) -> None:
        """Types lines; waits for the translations on standard output and the answer; then types Ctrl-D."""
        assert process.stdout is not None
        for line, answer, *translations in dialogue:
            self.expect("> ")
            self.type(f"{line}\n")
            for translation in b"".join(translations).splitlines(keepends=True):
                assert process.stdout.readline() == translation
            if answer:
                self.expect(answer)
        self.expect("> ")
        self.type("\x04")
        assert process.stdout.read() == b""
        assert process.wait(PATIENCE) == 0


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    os.close(terminal.ours)
    os.close(terminal.theirs)


def test_a_conversation(terminal: Terminal, own_cache: Path) -> None:
    process = start(stdin=terminal.theirs, stdout=terminal.theirs, stderr=terminal.theirs)
    terminal.expect("Ctrl-D exits")
    terminal.expect("> ")
    terminal.type("hello\n")
    terminal.expect("HELLO")
    terminal.expect("> ")
    terminal.type("\n")  # nothing to translate
    terminal.expect("> ")
    terminal.type("half a li")
    terminal.expect("half a li")
    terminal.type("\x03")  # Ctrl-C cancels the line
    terminal.expect("> ", nudge="\x03")
    terminal.type("wait\n")
    terminal.expect("working")
    terminal.type("\x03")  # Ctrl-C cancels the translation
    terminal.expect("> ", nudge="\x03")
    terminal.type("long and late\n")
    terminal.expect("cut to 1,024 of 2,345")
    terminal.expect("LONG AND LATE")
    terminal.expect("> ")
    terminal.type("\x04")  # Ctrl-D
    assert process.wait(PATIENCE) == 0
    assert "hello" in (own_cache / "history").read_text()


def test_commands_at_a_prompt(terminal: Terminal) -> None:
    process = start("decoding.beam_size=2", stdin=terminal.theirs, stderr=terminal.theirs)
    terminal.converse(
        process,
        ("one", "", b"ONE\n"),
        (":nbest 3", "decoding.nbest=3 decoding.beam_size=3 (raised from 2)"),
        ("one", "", b"2\t-0.5000\tONE\n2\t-1.5000\tONE!\n2\t-2.5000\tONE!!\n"),
        (":nbst 1", ":nbst: is not a command. Did you mean :nbest N?"),
        (":beam 0", "decoding.beam_size=0: must be between 1 and 1,000."),
        (":nbest 1", "decoding.nbest=1"),
        (":score", "scores=true"),
        (":prefix Ein Mann", 'Each translation begins with "Ein Mann".'),
        ("one", "", b"-0.5000\tEin Mann ONE\n"),
        (":prefix", "Translations have no prefix."),
        (":score", "scores=false"),
        ("::nbest", "", b":NBEST\n"),
        (":beam 101", "decoding.beam_size=101"),
        ("one", "a batch does not fit into the memory of cpu"),
        (":beam 2", "decoding.beam_size=2"),
        (":attention", "is shown"),
        ("a b", "a    100   .    .\r\nb      . 100    .\r\n</s>   .   .  100\r\n", b"A B\n"),
        (":help", "::TEXT          translate the line :TEXT"),
        ("number", 'line 6: the translation lacks or changes the number "7"', b"NUMBER\n"),
    )


def test_the_attention_table_fits_the_terminal(terminal: Terminal) -> None:
    fcntl.ioctl(terminal.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 13, 0, 0))
    process = start(stdin=terminal.theirs, stderr=terminal.theirs)
    blocks = (
        "       a   b\r\na    100   .\r\nb      . 100\r\n</s>   .   .\r\n\r\n"
        "     </s>\r\na       .\r\nb       .\r\n</s>  100\r\n"
    )
    terminal.converse(process, (":attention", "is shown."), ("a b", blocks, b"A B\n"))


def test_only_the_first_line_of_a_pasted_text_is_a_command(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], own_cache: Path
) -> None:
    pasted = iter([[":score", "one", ":beam 8", "::x"], [":typo", "two"], [""]])

    def ask() -> list[str]:
        try:
            return next(pasted)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr(prompt, "_ask", ask)

    def translate_with(settings: Settings) -> rows.TranslateRequests:
        model: Any = Shouter(settings.config.decoding)
        return command.translation_of_requests(model, None, alignments=False)

    prompt.converse(translate_with, TranslateConfig("m"), lambda *given: None)
    out, err = capfdbinary.readouterr()
    assert out == b"-0.5000\tONE\n-0.5000\t:BEAM 8\n-0.5000\t::X\n-0.5000\tTWO\n"
    assert err.decode().splitlines()[1:] == [
        "scores=true",
        ":typo: is not a command. :help lists the commands. ::TEXT translates :TEXT.",
        "",
    ]


def test_alignments_follow_the_number_of_translations(terminal: Terminal, tmp_path: Path) -> None:
    links = tmp_path / "links"
    process = start(f"alignments={links}", stdin=terminal.theirs, stderr=terminal.theirs)
    terminal.converse(
        process,
        (":nbest 2", "decoding.nbest=2"),
        ("one", "", b"1\t-0.5000\tONE\n1\t-1.5000\tONE!\n"),
        (":attention", f":attention: is not available with alignments={links}."),
    )
    assert links.read_text() == "\n\n"


def test_standard_input_that_is_a_folder(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(UserError, match="can't read standard input: it is a folder"):
            list(standard_input(descriptor))
    finally:
        os.close(descriptor)
