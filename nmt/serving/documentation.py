"""The description of the server as OpenAPI 3.1, and the pages. They load nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import yaml

from nmt import __version__
from nmt.config.serving import LimitsConfig
from nmt.decoding.attention_page import TEMPLATE


def description(
    languages: Sequence[Mapping[str, Any]], limits: LimitsConfig, *, needs_key: bool
) -> dict[str, Any]:
    """Returns the OpenAPI description of a server; `languages` are as `/languages` lists them."""
    targets = sorted({code for language in languages for code in language["targets"]})
    values = {
        "version": json.dumps(__version__),
        "sources": json.dumps(["auto", *(language["code"] for language in languages if language["targets"])]),
        "targets": json.dumps(targets),
        "required": json.dumps(["q", "api_key"] if needs_key else ["q"]),
        "alternatives": limits.alternatives,
        "beam_size": limits.beam_size,
        "characters": f"{limits.characters:,}",
        "sentences": f"{limits.sentences:,}",
        "attention_characters": f"{limits.attention_characters:,}",
    }
    openapi: dict[str, Any] = yaml.safe_load(Template(read_template("openapi.yaml")).substitute(values))
    return openapi


def documentation(openapi: Mapping[str, Any]) -> bytes:
    """Returns the page at `/docs`, from the description of the server."""
    content = "\n".join(_sections(openapi))
    return read_template("docs.html").replace("<!-- content -->", content).encode()


def _sections(openapi: Mapping[str, Any]) -> Iterator[str]:
    yield f"<p>{escape(openapi['info']['description'])}</p>"
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            yield f"<section><h2><span>{method.upper()}</span> {escape(path)}</h2>"
            yield f"<p>{_words(operation['summary'])}</p>"
            body = operation.get("requestBody")
            if body is not None:
                yield _table("Field of the request", body["content"]["application/json"]["schema"])
                found = operation["responses"]["200"]["content"].get("application/json")
                yield _table("Field of the answer", found["schema"]) if found else ""
                yield "<table><thead><tr><th>Status</th><th>Meaning</th></tr></thead><tbody>"
                for status, response in operation["responses"].items():
                    yield f"<tr><td>{status}</td><td>{_words(response['description'])}</td></tr>"
                yield "</tbody></table>"
            yield "</section>"


def _table(title: str, schema: Mapping[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(name)}</code>{' (required)' if name in schema['required'] else ''}</td>"
        f"<td>{_words(field.get('description', ''))}{_choices(field)}</td></tr>"
        for name, field in schema["properties"].items()
    ]
    head = f"<tr><th>{escape(title)}</th><th>Meaning</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _choices(field: Mapping[str, Any]) -> str:
    for key, words in (("enum", "One of"), ("examples", "The server has")):
        if key in field:
            return f" {words} {', '.join(f'<code>{escape(value)}</code>' for value in field[key])}."
    if "maximum" in field:
        return f" Between {field['minimum']} and {field['maximum']}."
    return ""


def _words(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def read_template(name: str, package: str = "nmt.serving") -> str:
    """Returns a file of `templates/` in a package."""
    return (files(package) / "templates" / name).read_text(encoding="utf-8")


def _policy(*pages: str) -> str:
    """Returns the Content-Security-Policy of pages: only their own styles and scripts, only this server."""
    hashes: dict[str, list[str]] = {"style": [], "script": []}
    for page in pages:
        for tag, content in re.findall(r"<(style|script)>(.*?)</\1>", page, re.DOTALL):
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            hashes[tag].append(f"'sha256-{digest}'")
    return (
        f"default-src 'none'; style-src {' '.join(hashes['style'])}; "
        f"script-src {' '.join(hashes['script'])}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


PAGE_HEADERS: Mapping[str, str] = {
    "content-security-policy": _policy(
        read_template("page.html"), read_template("docs.html"), read_template(TEMPLATE, "nmt.decoding")
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
"""The headers of the pages. The page of attention is shown inside the first one, with the same policy."""
