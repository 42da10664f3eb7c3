"""The Korean labels of the page of nmt-serve are those of its English labels, all of them."""

from __future__ import annotations

import re

from nmt.serving.documentation import read_template


def test_every_label_is_in_korean() -> None:
    before, rest = read_template("page.html").split('.startsWith("ko") ? {')
    table, script = rest.split("} : null;", 1)
    korean = dict(re.findall(r'"([^"]+)":\s+"([^"]+)"', table))
    body = before.partition("<body>")[2]
    labels = re.findall(r">([A-Z][^<>]*)<", body)
    labels += re.findall(r' (?:placeholder|data-hint|title)="([^"]+)"', body)
    labels += re.findall(r'\bt\((?:[\w.]+ \? )?"([^"]+)"', script)
    assert korean.keys() == set(labels)
    for label, text in korean.items():
        assert re.search("[가-힣]", text), label
        assert sorted(re.findall(r"\{\w+\}", label)) == sorted(re.findall(r"\{\w+\}", text)), label
