"""Data files that a model names are read only if they match its record."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nmt.config import DataConfig, HubConfig, SplitConfig
from nmt.data.corpora.recorded import NotRecorded, require_recorded
from nmt.data.corpora.text import file_facts
from nmt.errors import UserError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a.en", "a.de", "b.en", "secret"):
        Path(name).write_text(f"this is {name}\n")
    os.mkfifo("fifo")
    Path("link").symlink_to("secret")
    Path("sub").mkdir()
    Path("sub/a.en").write_text("this is a.en\n")
    return tmp_path


def facts(*names: str) -> list[dict[str, Any]]:
    return [file_facts(Path(name)) for name in names]


def check(split: SplitConfig, record: Any = None, **hub: str) -> None:
    data = DataConfig(name="d", source_lang="en", target_lang="de", hub=HubConfig(**hub))  # type: ignore[arg-type]
    require_recorded(split, data, "data.test", {} if record is None else record)


def test_the_recorded_files_may_be_read(folder: Path) -> None:
    both = {"source": facts("a.en"), "target": facts("a.de")}
    check(SplitConfig(source="a.en", target="a.de"), both)
    check(SplitConfig(source=str(folder / "a.en"), target="sub/../a.de"), both)
    check(SplitConfig(source="sub/a.en", target="a.de"), both)  # the file has moved
    check(SplitConfig(source=["a.en", "b.en"]), {"source": facts("a.en", "b.en")})
    check(SplitConfig(source="*.en"), {"source": facts("a.en", "b.en")})
    check(SplitConfig(path="a.en"), {"files": facts("a.en")})
    check(SplitConfig(source="a.en", groups="b.en"), {"source": facts("a.en"), "groups": facts("b.en")})
    check(SplitConfig(source="bundled:quickstart/test.en.gz", target="bundled:quickstart/test.de.gz"))
    check(SplitConfig(sacrebleu="wmt14"))
    check(SplitConfig(split="test"), path="wmt/wmt14", name="de-en", revision="main")


@pytest.mark.parametrize(
    ("split", "record"),
    [
        ({"source": "secret"}, {}),
        ({"source": "secret"}, {"source": "x"}),
        ({"source": "secret"}, {"source": [None]}),
        ({"source": "secret"}, {"source": [["a"]]}),
        ({"source": "secret"}, {"source": []}),
        ({"source": "secret"}, {"source": [{"bytes": 15}]}),
        ({"source": "secret"}, {"source": [{"bytes": 15, "sha256": "0" * 64}]}),
        ({"source": "secret"}, {"source": [{"bytes": 14, "sha256": None}]}),
        ({"source": "secret"}, {"target": "a.en"}),
        ({"source": "secret"}, {"source": ["a.en"]}),
        ({"source": "a.en"}, {"source": ["b.en"]}),
        ({"source": ["a.en", "secret"]}, {"source": ["a.en"]}),
        ({"source": ["a.en", "secret"]}, {"source": ["a.en", "b.en"]}),
        ({"target": "secret"}, {"source": ["a.en"]}),
        ({"path": "secret"}, {"files": ["a.en"]}),
        ({"path": "secret"}, {"path": ["secret"]}),
        ({"groups": "secret"}, {}),
        ({"source": "link"}, {"source": ["a.en"]}),
        ({"source": "fifo"}, {"source": [{"bytes": 0, "sha256": ""}]}),
        ({"source": "/dev/zero"}, {"source": [{"bytes": 0, "sha256": ""}]}),
        ({"source": "/dev/stdin"}, {"source": [{"bytes": 0, "sha256": ""}]}),
        ({"source": "/proc/self/environ"}, {"source": [{"bytes": 0, "sha256": ""}]}),
        ({"source": "/proc/self/environ"}, {}),
        ({"source": "/etc/passwd"}, {}),
        ({"source": "~/.ssh/id_rsa"}, {}),
        ({"source": "~nobody-here/x"}, {}),
        ({"source": "sub"}, {}),
        ({"source": "x\x00y"}, {}),
        ({"source": "x" * 5000}, {}),
        ({"source": "/**/x"}, {"source": ["a.en"]}),
        ({"source": "*/a.en"}, {"source": ["a.en"]}),
        ({"source": "s*"}, {}),
        ({"source": "bundled:../../secret"}, {}),
        ({"source": "bundled:/etc/passwd"}, {}),
        ({"source": "bundled:quickstart/../../pyproject.toml"}, {}),
        ({"source": "${oc.env:HOME}/x"}, {}),
    ],
    ids=range(36),
)
def test_no_other_file_is_read(
    split: dict[str, Any], record: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, names in record.items():
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            record[kind] = facts(*names)

    def opened(path: Any, *args: Any) -> Any:
        assert Path(path).name in ("a.en", "b.en"), "the secret was opened"
        return original(path, *args)

    import builtins

    original = builtins.open
    secret_is_as_long = any(
        isinstance(x, list) and x and isinstance(x[0], dict) and x[0].get("bytes") == 15
        for x in record.values()
    )
    if not secret_is_as_long:
        monkeypatch.setattr(builtins, "open", opened)
    with pytest.raises(UserError) as caught:
        check(SplitConfig(**split), record)
    assert str(caught.value).startswith("data.test.") or str(caught.value).startswith("can't read")


@pytest.mark.parametrize(
    "hub",
    [
        *(
            {"path": path}
            for path in (".", "/", "sub", "..", "json", "text", "../x/y", "a/b/c", "http://x/y", "a/../b")
        ),
        *(
            {"path": path}
            for path in ("x/${oc.env:HOME}", "x/y\n", "x/ y", "", "~", "hf://x/y", "x/y@z", "-x/y")
        ),
        *({"path": "x/y", "name": name} for name in ("../..", "/etc", "a b", "${a}")),
        {"path": "x/y", "revision": "../../main"},
    ],
    ids=range(23),
)
def test_only_names_on_the_hub_are_asked_for(hub: dict[str, str], folder: Path) -> None:
    with pytest.raises(NotRecorded, match=r"^data\.hub\."):
        check(SplitConfig(split="test"), **hub)
