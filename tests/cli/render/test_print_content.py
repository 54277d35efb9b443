"""What a server gives, as it is printed, saved or shown."""

from __future__ import annotations

import io
import json
import resource
import signal
from base64 import b64encode
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from mcplumb.cli.render import output
from mcplumb.cli.render.print_content import (
    ContentSink,
    end_line,
    plain,
    print_contents,
    print_messages,
    print_result,
    say_failure,
)
from mcplumb.errors import DecodeError, UsageError
from mcplumb.types.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    UnknownContent,
)
from mcplumb.types.prompts import GetPromptResult, PromptMessage
from mcplumb.types.resources import ResourceContents
from mcplumb.types.tools import CallToolResult

PNG = b"\x89PNG\r\n\x1a\npixels"
EVIL = "\x1b[2J\x9b\u202e"
CLEAN = "\\x1b[2J\\x9b\\u202e"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    for name in ("TMUX", "TERM_PROGRAM", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    yield Terminal(io.BytesIO(), encoding="utf-8")
    output.set_color(None)


def image(content: bytes = PNG, mime_type: str = "image/png") -> ImageContent:
    return ImageContent(b64encode(content).decode(), mime_type)


def printed(result: CallToolResult, capsys: pytest.CaptureFixture[str], place: str | None = None) -> str:
    print_result(result, ContentSink(place, "tool"))
    return capsys.readouterr().out


def result(*blocks: ContentBlock | str, structured: Any = None) -> CallToolResult:
    content = [TextContent(block) if isinstance(block, str) else block for block in blocks]
    return CallToolResult(content, structured_content=structured)


# --- Text and data ---


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        (result("a", "b\n", "c"), "a\nb\nc\n"),
        (result(EVIL), f"{EVIL}\n"),
        (result(), ""),
        (result('{"a": 1}', structured={"a": 1}), '{"a":1}\n'),
        (result("[1, 2]", structured=[1, 2]), "[1,2]\n"),
        (result("sun", structured={"result": "sun"}), "sun\n"),
        (result("3", structured={"result": 3}), '{"result":3}\n'),
        (result("x", "3", structured={"result": ["x", 3]}), '{"result":["x",3]}\n'),
        (result("sun", structured={"weather": "sun"}), '{"weather":"sun"}\n'),
        (result("It is sunny.", structured={"weather": "sun"}), 'It is sunny.\n{"weather":"sun"}\n'),
        (result("a", "b", structured={"weather": "sun", "days": 1}), 'a\nb\n{"weather":"sun","days":1}\n'),
        (result(structured=[EVIL]), f'["\\u001b[2J{EVIL[4:]}"]\n'),
        (result(UnknownContent("song", {"type": "song", "la": 1})), '{"type":"song","la":1}\n'),
        (result(ResourceLink("a://b", "name")), "a://b  name\n"),
        (result(ResourceLink("a://b", "name", title="Title", mime_type="text/css")), "a://b  Title (text/css)\n"),
        (result(EmbeddedResource(ResourceContents("a://b", text="inside"))), "inside\n"),
    ],
)
def test_a_pipe_gets_text_as_it_is_and_data_as_one_line(
    given: CallToolResult, lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(given, capsys) == lines


def test_a_terminal_gets_clean_text_and_pretty_data(terminal: Terminal) -> None:
    given = result(f"{EVIL}\n", ResourceLink(f"a://{EVIL}", EVIL), structured={"a": EVIL})
    with redirect_stdout(terminal):
        print_result(given, ContentSink(None, "tool"))
    data = '{\n  "a": "\\u001b[2J\\u009b\\u202e"\n}\n'
    assert terminal.shown == f"{CLEAN}\na://{CLEAN}  {CLEAN}\n{data}"


def test_a_failure_is_told_in_the_words_of_the_tool(capsys: pytest.CaptureFixture[str]) -> None:
    say_failure(result("It", f"burns.{EVIL}"), "cook")
    say_failure(result(structured={"code": 3}), "cook")
    say_failure(result(), "cook")
    assert capsys.readouterr().err.splitlines() == [
        "Error: It",
        f"burns.{CLEAN}",
        'Error: {"code":3}',
        "Error: The tool cook failed without a message.",
    ]


def test_data_is_as_it_came() -> None:
    song = {"type": "song", "la": 1}
    unknown = UnknownContent("song", song)
    assert plain(result("a", unknown))["content"] == [{"type": "text", "text": "a"}, song]
    assert plain(GetPromptResult([PromptMessage("user", unknown)]))["messages"] == [{"role": "user", "content": song}]
    assert plain(ResourceContents("a://b", text="x")) == {"uri": "a://b", "text": "x"}


def test_messages(capsys: pytest.CaptureFixture[str]) -> None:
    messages = [PromptMessage("user", TextContent("Who?")), PromptMessage("assistant", TextContent("You."))]
    print_messages(messages, ContentSink(None, "plan"))
    assert capsys.readouterr().out == "Who?\n\nYou.\n"


def test_messages_at_a_terminal(terminal: Terminal) -> None:
    with redirect_stdout(terminal):
        print_messages([PromptMessage("user", TextContent(EVIL))], ContentSink(None, "plan"))
    assert terminal.shown == f"user:\n{CLEAN}\n"


# --- Files ---


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_bytes_go_to_new_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tool-1.png").write_text("mine", encoding="utf-8")
    (folder / "tool-2.png").symlink_to("nowhere")
    sound = AudioContent(b64encode(b"RIFF").decode(), "audio/wav; rate=8000")
    file = EmbeddedResource(ResourceContents("file:///a/..%2Fb%00/.report.pdf?x=/y", blob=b64encode(b"PDF").decode()))
    print_result(result(image(), image(), sound, file, file, image(b"?", "made/up")), ContentSink(None, "tool"))
    assert capsys.readouterr().err.splitlines() == [
        "Saved 14 bytes (image/png) as tool-3.png.",
        "Saved 14 bytes (image/png) as tool-4.png.",
        "Saved 4 bytes (audio/wav; rate=8000) as tool-1.wav.",
        "Saved 3 bytes (of no known type) as report.pdf.",
        "Saved 3 bytes (of no known type) as report-2.pdf.",
        "Saved 1 bytes (made/up) as tool-1.bin.",
    ]
    assert (folder / "tool-1.png").read_text(encoding="utf-8") == "mine"
    assert (folder / "tool-3.png").read_bytes() == PNG
    assert not (folder / "nowhere").exists()


@pytest.mark.parametrize(
    ("tool", "file"),
    [
        ("../../x", "x-1.png"),
        (".hidden", "hidden-1.png"),
        ("a b\x1b/c", "a-b--c-1.png"),
        ("//", "content-1.png"),
        ("x" * 300, f"{'x' * 120}-1.png"),
        ("été", "été-1.png"),
        ("漢" * 300, f"{'漢' * 40}-1.png"),
        ("a\u3164b", "a-b-1.png"),
    ],
)
def test_a_name_from_a_server_stays_in_the_folder(tool: str, file: str, folder: Path) -> None:
    print_result(result(image()), ContentSink(None, tool))
    assert names(folder) == [file]


@pytest.mark.parametrize(
    ("uri", "mime_type", "file"),
    [
        ("file:///json.py", None, "tool-json.bin"),
        ("file:///conftest.py", "text/x-python", "tool-conftest.bin"),
        ("file:///GNUmakefile", "text/plain", "tool-GNUmakefile.txt"),
        ("file:///package.json", "application/json", "tool-package.json"),
        ("file:///.bashrc", None, "tool-bashrc.bin"),
        ("file:///Chart.PNG", "application/x-sh", "Chart.PNG"),
        ("x:/" + "é" * 300 + ".exe", None, f"tool-{'é' * 60}.bin"),
    ],
)
def test_no_server_gives_a_name_that_a_program_looks_for(
    uri: str, mime_type: str | None, file: str, folder: Path
) -> None:
    blob = b64encode(b"import os").decode()
    given = result(EmbeddedResource(ResourceContents(uri, mime_type=mime_type, blob=blob)))
    print_result(given, ContentSink(None, "tool"))
    assert names(folder) == [file]
    # Where the user wants to have it, it has its name.
    (folder / "there").mkdir()
    print_result(given, ContentSink("there", "tool"))
    ((there,),) = [names(folder / "there")]
    assert there.startswith(uri.rpartition("/")[2].strip(".")[:10])


def test_nobody_gets_hundreds_of_files_unasked(folder: Path) -> None:
    many = result(*[image()] * 150)
    with pytest.raises(UsageError, match="There are more than 100 files: give a folder for them, with --output FOLDER"):
        print_result(many, ContentSink(None, "tool"))
    assert len(names(folder)) == 100
    (folder / "there").mkdir()
    print_result(many, ContentSink("there", "tool"))
    assert len(names(folder / "there")) == 150


def test_half_a_file_is_not_left(folder: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))  # as if the disk were full
    try:
        with pytest.raises(UsageError, match=r"tool-1.png cannot be written: File too large\."):
            print_result(result(image(b"x" * 5000)), ContentSink(None, "tool"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert names(folder) == []


def test_the_user_can_say_where(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "there").mkdir()
    print_result(result(image()), ContentSink("there", "tool"))
    print_result(result(image()), ContentSink("there/", "tool"))
    print_result(result(image(), image()), ContentSink("there/a.png", "tool"))
    assert names(folder / "there") == ["a-2.png", "a.png", "tool-1.png", "tool-2.png"]
    capsys.readouterr()
    print_result(result("text\n", image(b"ascii")), ContentSink("-", "tool"))
    assert capsys.readouterr() == ("text\nascii", "")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("a.png", "the file exists already, and is not overwritten"),
        ("gone/b.png", "there is no folder 'gone'"),
        ("gone/", "there is no folder 'gone'"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_before(place: str, said: str, folder: Path) -> None:
    (folder / "a.png").touch()
    with pytest.raises(UsageError, match=said):
        ContentSink(place, "tool")


def test_what_cannot_be_written_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "there").mkdir()
    sink = ContentSink("there/", "tool")
    (folder / "there").rmdir()
    with pytest.raises(UsageError, match=r"there/tool-1.png cannot be written: No such file or directory\."):
        sink.put(b"", None, "tool-1.png")
    monkeypatch.setattr("mcplumb.cli.render.print_content._MAX_TRIES", 3)
    for _ in range(2):
        ContentSink(None, "tool").put(b"", "text/plain")
    with pytest.raises(UsageError, match="There are too many files of that name"):
        ContentSink(None, "tool").put(b"", "text/plain")


def test_what_is_not_in_base64_is_the_servers_mistake(folder: Path) -> None:
    with pytest.raises(DecodeError, match="The server sent an image that is not valid base64"):
        print_result(result(ImageContent("§", "image/png")), ContentSink(None, "tool"))


# --- Resources ---


TEXT = ResourceContents("a://menu", text="soup\nbread", mime_type="text/plain")
BLOB = ResourceContents("a://photo.png", blob=b64encode(PNG).decode(), mime_type="image/png")


def test_a_pipe_gets_resources_to_the_byte(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    print_contents([TEXT, BLOB], ContentSink(None, "resource"))
    assert capsysbinary.readouterr().out == b"soup\nbread" + PNG


def test_a_terminal_gets_text_and_a_file_the_bytes(terminal: Terminal, folder: Path) -> None:
    with redirect_stdout(terminal):
        print_contents([TEXT, BLOB], ContentSink(None, "resource"))
    assert terminal.shown == "soup\nbread\n"
    assert (folder / "photo.png").read_bytes() == PNG


def test_a_terminal_gets_bytes_if_it_has_to_be(terminal: Terminal) -> None:
    with redirect_stdout(terminal):
        print_contents([ResourceContents("a://b", blob=b64encode(b"raw").decode())], ContentSink("-", "resource"))
    assert terminal.shown == "raw"


def test_a_place_gets_text_too(folder: Path) -> None:
    print_contents([TEXT], ContentSink("copy.txt", "resource"))
    assert (folder / "copy.txt").read_text(encoding="utf-8") == "soup\nbread"


# --- Pictures at a terminal ---


def shown(terminal: Terminal, picture: ImageContent, place: str | None = None) -> str:
    with redirect_stdout(terminal):
        print_result(result(picture), ContentSink(place, "tool"))
    return terminal.shown


def test_kitty_shows_pictures_in_pieces(terminal: Terminal, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-kitty")
    picture = image(PNG * 400)
    first, second = picture.data[:4096], picture.data[4096:]
    assert len(second) in range(1, 4097)
    assert shown(terminal, picture) == f"\x1b_Ga=T,f=100,m=1;{first}\x1b\\\x1b_Gm=0;{second}\x1b\\\n"
    assert names(folder) == []


def test_iterm_shows_pictures(terminal: Terminal, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM_PROGRAM", "iTerm.app")
    data = b64encode(b"JPEG").decode()
    assert shown(terminal, image(b"JPEG", "image/jpeg")) == f"\x1b]1337;File=inline=1;size=4:{data}\x07\n"
    assert names(folder) == []


@pytest.mark.parametrize("how", ["another", "tmux", "not a PNG", "too large", "a place was given"])
def test_otherwise_pictures_are_saved(
    how: str, terminal: Terminal, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color" if how == "another" else "xterm-kitty")
    if how == "tmux":
        monkeypatch.setenv("TMUX", "1")
    if how == "too large":
        monkeypatch.setattr("mcplumb.cli.render.print_content._MAX_SHOWN", 3)
    picture = image(b"GIF" if how == "not a PNG" else PNG)
    assert shown(terminal, picture, "." if how == "a place was given" else None) == ""
    assert names(folder) == ["tool-1.png"]


def test_json_is_one_document() -> None:
    assert json.loads(json.dumps(plain(result("a")))) == {"content": [{"type": "text", "text": "a"}]}


def test_what_comes_next_can_begin_on_a_line_of_its_own(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    for text in ("one", "two\n", "three"):
        print_contents([ResourceContents("a://b", text=text)], ContentSink(None, "resource"))
        end_line()
    end_line()
    assert capsysbinary.readouterr().out == b"one\ntwo\nthree\n"
