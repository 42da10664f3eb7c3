"""The options of `nmt-serve`: models, address, access and limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from nmt.config import disabled
from nmt.config.checks import PROCESSES, Section, above, between, bounded, shortened
from nmt.config.commands import folders
from nmt.config.decoding import DecodingConfig
from nmt.config.schema import path_field, registered_name
from nmt.errors import UserError

_HOST = r"(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?"
_ORIGIN = re.compile(rf"\*|null|(?P<scheme>[a-z][a-z0-9+.-]*)://{_HOST}")
_PUBLIC_URL = re.compile(rf"https?://(?i:{_HOST})(?:/[A-Za-z0-9._~%-]+)*/?")


@dataclass
class LimitsConfig(Section, key="limits."):
    """What one client, and all clients together, may ask of the server."""

    body_bytes: int = bounded(1_048_576, between(1, 1 << 30))
    """Largest body of a request in bytes. A larger one has the answer 413."""
    held_bytes: int = bounded(67_108_864, between(1, 1 << 40))
    """Largest number of bytes of all bodies that are being read, waiting or translated. Above it the answer
    is 503."""
    characters: int = bounded(100_000, between(1, 1 << 30))
    """Most characters of all texts of a request. More have the answer 413."""
    sentences: int = bounded(2_000, between(1, 1_000_000))
    """Most lines, and most sentences, of all texts of a request. More have the answer 413."""
    waiting_sentences: int = bounded(10_000, between(1, 100_000_000))
    """Most sentences that wait for translation. If a request does not fit, the answer is 503 with
    Retry-After."""
    work: int = bounded(2_000_000, between(1, 1 << 50))
    """Largest work of a request: its characters, and 60 a line, times the hypotheses of the beam; again for
    each translation in which tags are placed, and for each required term of a line. More has the answer
    413."""
    waiting_work: int = bounded(10_000_000, between(1, 1 << 50))
    """Largest work of all requests that wait. If a request does not fit, the answer is 503."""
    connections: int = bounded(512, between(1, 1_000_000))
    """Most open connections. A further one has the answer 503 and is closed."""
    header_bytes: int = bounded(32_768, between(1024, 1 << 20))
    """Largest header of a request in bytes. A larger one has the answer 431."""
    header_seconds: float = bounded(10.0, above(0, 86_400))
    """Seconds in which a client must send the header of a request. Afterwards the answer is 408."""
    body_seconds: float = bounded(20.0, above(0, 86_400))
    """Seconds in which a client must send the body of a request. Afterwards the answer is 408."""
    request_seconds: float = bounded(60.0, above(0, 86_400))
    """Seconds from the complete request to its answer. Afterwards the answer is 504, and the lines that still
    wait are dropped."""
    idle_seconds: int = bounded(30, between(1, 86_400))
    """Seconds without a request after which a connection is closed."""
    drain_seconds: int = bounded(90, between(1, 86_400))
    """Seconds that accepted requests have after SIGTERM."""
    alternatives: int = bounded(9, between(0, 999))
    """Most further translations of a text (`alternatives` of a request)."""
    beam_size: int = bounded(16, between(1, 1000))
    """Largest `beam_size` of a request."""
    attention_characters: int = bounded(1_000, between(0, 1 << 20))
    """Most characters of all texts of a request with `attention`, or to `/attention`. More have the answer
    413."""


@dataclass
class ServeConfig(Section, refused=disabled.REFUSED_IN_SERVING):
    """Options of `nmt-serve`: the models, the address, the access, and limits of requests."""

    model_dir: Any = path_field("folder", "???", several=True)
    """Model folder, run folder, checkpoint or `hf://OWNER/NAME`. A list, `[DIR,DIR]`, has models of different
    languages. With `backend=ctranslate2`, also exports."""
    host: str = "127.0.0.1"
    """Address to listen on. The default is reached from this machine alone. `0.0.0.0`: from everywhere."""
    port: int = bounded(5000, between(0, 65_535))
    """Port to listen on. 0: a free one; the log has its number."""
    api_key_file: str | None = path_field("file", None)
    """Text file with the key that every translation request must have as `api_key`. null: no key."""
    api_key_variable: str | None = None
    """Environment variable with the key, in place of `api_key_file`."""
    terminology: str | None = path_field("file", None)
    """File of lines `source term<TAB>target term`. The terms of all texts are translated as in the file. A
    request may have further ones. See docs/serving.md. null: none."""
    cors_origins: list[str] = field(default_factory=list)
    """Web sites whose pages may use the server, such as `[https://example.org]`; `["*"]`: all of them."""
    public_url: str | None = None
    """Address at which clients reach the server behind a proxy, such as `https://example.org/nmt`, for the
    addresses of translated files. null: the scheme http and the host that the client has called."""
    batch_wait_ms: float = bounded(3.0, between(0, 10_000))
    """Milliseconds that a request waits for others to share its batch, if a translating thread is free."""
    plugins: list[str] = field(default_factory=list)
    """Python modules to import first, such as `[my_package.encodings]`. They register parts of the model and
    search processors. See docs/extending.md."""
    backend: str = registered_name("nmt", "nmt", "ctranslate2")
    """Engine that translates: `nmt`, or `ctranslate2`, which is faster on the CPU and has fewer options. It
    reads an export, which is made once if it is missing. See docs/translating.md."""
    quantization: str | None = None
    """With `backend=ctranslate2`, the number format of the weights: `float32`, `int8` (fast, and slightly
    less exact) or another one of `nmt-export`. null: `float32`, or that of the given export."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, or `mps` (Apple; not tested). `auto`: a GPU if there is one."""
    precision: str = "fp32"
    """`auto`, `fp32`, `bf16` or `fp16`. With bf16 and fp16, which are faster, a translation may depend on the
    other sentences of its batch. `auto` chooses for the device."""
    threads: int = bounded(0, between(0, PROCESSES))
    """CPU threads. 0: one per core."""
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        folders("model_dir", self.model_dir)
        for origin in self.cors_origins:
            match = _ORIGIN.fullmatch(origin)
            if match is None or int(match["port"] or 1) > 65_535:
                raise UserError(
                    f"cors_origins={shortened(origin)}: must be as browsers send it: a scheme and a host in "
                    "lower case, without a path, such as https://example.org or http://localhost:3000; or *."
                )
            if (match["scheme"], match["port"]) in (("https", "443"), ("http", "80")):
                raise UserError(
                    f"cors_origins={shortened(origin)}: browsers leave out the usual port. Remove it."
                )
        match = _PUBLIC_URL.fullmatch("https://a" if self.public_url is None else self.public_url)
        if match is None or int(match["port"] or 1) > 65_535:
            raise UserError(
                f"public_url={shortened(str(self.public_url))}: must be the address of the server, such as "
                "https://example.org or https://example.org/nmt, without user, query and fragment."
            )
        if not self.host or not self.host.isprintable() or " " in self.host:
            raise UserError(f"host={shortened(self.host)}: must be an address or a name, such as 127.0.0.1.")
