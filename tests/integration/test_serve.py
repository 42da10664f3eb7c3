"""nmt-serve: a real server answers as nmt-translate does."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest
from commands import Toy
from serving import JSON, Server, serving

import nmt
from nmt.config import LimitsConfig
from nmt.serving.documentation import description


@pytest.fixture(scope="module")
def server(toy: Toy, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the default limits, two threads that translate, and no key."""
    options = (f"model_dir={trained}", "threads=2")
    with serving(toy, tmp_path_factory.mktemp("server"), *options, fresh=True) as found:
        yield found


def test_the_answers_are_those_of_the_command(server: Server, expected: dict[str, str]) -> None:
    lines = [*expected]
    answer = server.translate(q=lines, source="xx", target="yy", format="text", api_key="not needed")
    assert (answer.status, answer.json) == (200, {"translatedText": [expected[line] for line in lines]})
    first, second, last = lines[0], lines[1], lines[-2]
    text = f"{first}\r\n\n{second}\n{last}"
    joined = f"{expected[first]}\r\n\n{expected[second]}\n{expected[last]}"
    assert server.translate(q=text).json == {"translatedText": joined}
    form = server.request(
        "POST",
        "/translate",
        urlencode({"q": text, "source": "auto"}).encode(),
        {"content-type": "application/x-www-form-urlencoded"},
    )
    assert form.json["translatedText"] == joined
    assert server.translate(q="").json == {"translatedText": ""}
    assert server.translate(q=[]).json == {"translatedText": []}


def test_options_of_a_request_are_those_of_the_command(
    server: Server, toy: Toy, trained: Path, expected: dict[str, str]
) -> None:
    lines = [*expected][:5]
    options = ("decoding.beam_size=5", "decoding.nbest=3", "decoding.length_penalty=1.2")
    written = toy.run(
        "nmt-translate", f"model_dir={trained}", *options, text="".join(f"{x}\n" for x in lines)
    )
    rows = [row.split("\t") for row in written.stdout.decode().splitlines()]
    answer = server.translate(q=lines, beam_size=5, alternatives=2, length_penalty=1.2, scores=True).json
    flat = [one for text in answer["lines"] for line in text for one in line["translations"]]
    assert [one["text"] for one in flat] == [row[2] for row in rows]
    assert [one["score"] for one in flat] == pytest.approx([float(row[1]) for row in rows], abs=2e-4)
    assert answer["alternatives"][0] == [rows[1][2], rows[2][2]]


def test_sentences_of_a_line_are_translated_as_by_the_command_and_python(
    server: Server, toy: Toy, trained: Path
) -> None:
    words = [line.capitalize() for line in (toy.folder / "train.src").read_text().split("\n")[:4]]
    line = f"{words[0]}.  {words[1]}!\u2029{words[2]}?\t{words[3]}."
    written = toy.run("nmt-translate", f"model_dir={trained}", text=f"{line}\n").stdout.decode()
    [text] = nmt.load(trained).translate([line])
    answer = server.translate(q=f"{line}\n", scores=True).json
    assert written == answer["translatedText"] == f"{text}\n"
    parts = answer["lines"][0]["parts"]
    assert [part["source"] for part in parts] == [
        f"{words[0]}.", f"{words[1]}!", f"{words[2]}?", f"{words[3]}."
    ]  # fmt: skip
    first, second, third, last = (part["text"] for part in parts)
    assert text == f"{first}  {second}\u2029{third}\t{last}"
    alone = server.translate(q=[part["source"] for part in parts], scores=True).json
    assert alone["translatedText"] == [part["text"] for part in parts]


def test_attention_has_a_row_for_each_piece(server: Server, expected: dict[str, str]) -> None:
    line = [*expected][0]
    answer = server.translate(q=f"{line}\n", attention=True).json
    found, blank = answer["lines"]
    [best] = found["translations"]
    assert best["text"] == expected[line]
    assert found["pieces"][-1] == best["pieces"][-1] == "</s>"
    assert len(best["attention"]) == len(best["pieces"])
    for row in best["attention"]:
        assert len(row) == len(found["pieces"])
        assert sum(row) == pytest.approx(1, abs=0.02)
    assert blank == {
        "translations": [{"text": "", "score": 0.0, "pieces": [], "attention": []}],
        "pieces": [],
    }


def test_a_page_of_the_attention_of_all_heads(server: Server, trained: Path) -> None:
    model = nmt.load(trained, threads=1)
    pairs = [("ba de", "ab"), ("ki", "ik bo")]
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    page = server.attention(q=[*sources, " "], translation=[*targets, "a"], source="xx", target="yy")
    assert (page.status, page.body.decode()) == (200, model.attention_page(pairs))
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-store"
    [script] = re.findall(r"<script>(.*?)</script>", page.body.decode(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in page.headers["content-security-policy"]
    own = server.attention(q="ba de")  # with the translation of the model
    assert own.body.decode() == model.attention_page([("ba de", model.translate("ba de"))])

    assert server.attention(q=" \n").json == {"error": "q: has no sentence. Give one."}
    long = server.attention(q="🙂" * 400, translation="ab")  # four pieces each
    too_long = {"error": "q: the sentence has too many tokens to show. Give a shorter one."}
    assert (long.status, long.json) == (413, too_long)
    assert server.attention(q="ba " * 400).status == 413
    assert server.figure('nmt_requests_total{path="/attention",status="413"}') == 2


def test_fifty_clients_get_their_own_answers(server: Server, expected: dict[str, str]) -> None:
    lines = [*expected]

    def client(number: int) -> list[tuple[str, str]]:
        own = [lines[(7 * number + step) % len(lines)] for step in range(6)]
        options = [{}, {"alternatives": 1}, {"beam_size": 2}][number % 3]
        return [(line, server.translate(q=line, **options).json["translatedText"]) for line in own]

    with ThreadPoolExecutor(50) as pool:
        for found in pool.map(client, range(50)):
            for line, answer in found:
                assert answer == expected[line]
    assert server.figure("nmt_waiting_lines") == 0
    assert server.figure("nmt_batch_lines_count") < server.figure("nmt_lines_total")  # lines shared batches


def test_the_other_paths(server: Server) -> None:
    assert server.request("GET", "/languages").json == [
        {"code": "xx", "name": "xx", "targets": ["yy"], "tag": "xx"},
        {"code": "yy", "name": "yy", "targets": [], "tag": "yy"},
    ]
    assert server.request("GET", "/health").json == {"status": "ok"}
    assert server.request("GET", "/frontend/settings").json["keyRequired"] is False
    openapi = server.request("GET", "/openapi.json").json
    assert openapi == description(server.request("GET", "/languages").json, LimitsConfig(), needs_key=False)
    for path in ("/", "/docs"):
        page = server.request("GET", path)
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert not re.findall(rb"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", page.body)
    missing = server.request("GET", "/nothing")
    assert (missing.status, list(missing.json)) == (404, ["error"])
    elsewhere = server.request("GET", "/docs/", headers={"host": "evil.example"})
    assert (elsewhere.status, elsewhere.headers.get("location")) == (404, None)
    wrong = server.request("GET", "/translate")
    assert (wrong.status, wrong.headers["allow"], list(wrong.json)) == (405, "POST", ["error"])
    assert (
        "access-control-allow-origin"
        not in server.request("GET", "/health", headers={"origin": "http://a"}).headers
    )


def test_a_large_body(server: Server) -> None:
    body = b'{"q": "' + b"a" * 10_000_000 + b'"}'
    answer = server.request("POST", "/translate", body, JSON)
    assert (answer.status, answer.json) == (413, {"error": "The body has more than 1,048,576 bytes."})

    def parts() -> Iterator[bytes]:
        for _ in range(100):
            yield b"a" * 100_000

    answer = server.request("POST", "/translate", parts(), JSON)  # type: ignore[arg-type]
    assert answer.status == 413  # chunked: no Content-Length


def test_several_models(server: Server, toy: Toy, trained: Path, tmp_path: Path) -> None:
    other = shutil.copytree(trained / "model", tmp_path / "other")
    text = (other / "config.yaml").read_text()
    assert "target_lang: yy" in text
    (other / "config.yaml").write_text(text.replace("target_lang: yy", "target_lang: zz"))
    (other / "SHA256SUMS").unlink(missing_ok=True)
    with serving(toy, tmp_path, f"model_dir=[{trained},{other}]", "decoding.workers=1", "threads=1") as both:
        [language, *_] = both.request("GET", "/languages").json
        assert language == {"code": "xx", "name": "xx", "targets": ["yy", "zz"], "tag": "xx"}
        one = both.translate(q="ba", target="yy").json["translatedText"]
        assert one == both.translate(q="ba", source="auto", target="zz").json["translatedText"]
        answer = both.translate(q="ba", source="xx")
        assert (answer.status, answer.json) == (
            400,
            {
                "error": "Invalid request: missing target parameter",
                "hint": "The server translates xx to yy, xx to zz.",
            },
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("model_dir=nowhere",), "model_dir=nowhere: "),
        (
            ("model_dir=[trained,trained]",),
            "model_dir=trained: translates from xx into yy, as trained does. ",
        ),
        (
            ("model_dir=trained", "host=no.such.host.invalid"),
            "host=no.such.host.invalid: is not a known address",
        ),
        (("model_dir=trained", "host=203.0.113.1"), "host=203.0.113.1: can't listen there: "),
        (("model_dir=trained", "api_key_file=none"), "api_key_file=none: there is no such file."),
        (("model_dir=trained", "api_key_file=two-lines"), "api_key_file=two-lines: the key must be one line"),
        (
            ("model_dir=trained", "cors_origins=[https://example.org/]"),
            "cors_origins=https://example.org/: must be as browsers send it",
        ),
        (("model_dir=trained", "public_url=x.org"), "public_url=x.org: must be the address of the server"),
        (("model_dir=trained", "terminology=none"), "terminology=none: there is no such file"),
        (("model_dir=[trained,other]", "terminology=t"), "terminology=t: has the terms of one pair"),
        (("model_dir=trained", "decoding.samples=3"), "decoding.samples=3: is not available in nmt-serve."),
        (("model_dir=trained", "decoding.nbest=2"), "decoding.nbest=2: a request chooses its number"),
    ],
)
def test_wrong_options(toy: Toy, trained: Path, options: tuple[str, ...], message: str) -> None:
    (toy.folder / "two-lines").write_text("open\nsesame\n")
    assert toy.refused("nmt-serve", "port=0", *options).startswith(message)


def test_a_port_in_use(toy: Toy, trained: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        refused = toy.refused("nmt-serve", f"model_dir={trained}", f"port={port}")
    assert refused == f"port={port}: this port is in use. Give another one, or port=0 for a free one."


def test_without_the_extra(toy: Toy, trained: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['nmt-serve', 'model_dir=trained'];"
        "from nmt.cli.serve import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=toy.folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ('nmt-serve: the package uvicorn is not installed. Run pip install "nmt[serve]".\n')
