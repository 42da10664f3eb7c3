"""The messages that docs/troubleshooting.md quotes are those of the code.

In the page, capital letters such as N stand for a value. A quoted line may be a part of a message.
"""

from __future__ import annotations

import ast
import difflib
import re

import pytest
from doc_pages import ROOT, Block, page

PAGE = ROOT / "docs" / "troubleshooting.md"
VALUE = "□"
_STANDS_FOR_A_VALUE = re.compile(r"\b(N|KEY|FILE|NAME|VALUE|REASON)\b")
_LOGGED_VALUE = re.compile(r"%(%|[-+]?[\d.*]*[a-z])")


def lines() -> list[str]:
    """The quoted messages."""
    quoted: list[Block] = [block for block in page(PAGE)[1] if block.language == "text"]
    return [line for block in quoted for line in block.text.splitlines()]


@pytest.fixture(scope="module")
def messages() -> list[str]:
    """All texts in the code, with a box in the place of each value."""
    found = []
    for path in (ROOT / "nmt").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else VALUE for part in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                found.append(_LOGGED_VALUE.sub(lambda match: "%" if match[1] == "%" else VALUE, node.value))
    return found


@pytest.mark.parametrize("line", lines())
def test_a_quoted_message_is_in_the_code(line: str, messages: list[str]) -> None:
    wanted = _STANDS_FOR_A_VALUE.sub(VALUE, line)
    assert len(wanted) >= 12, "too short to mean one message"
    if not any(wanted in message for message in messages):
        near = difflib.get_close_matches(wanted, messages, n=1, cutoff=0.0)
        pytest.fail(f"no such message in the code; the nearest is: {near[0]}")
