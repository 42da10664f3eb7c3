"""The options of `nmt-serve`: models, address, access and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nmt.config.checks import PROCESSES, above, between, check, shortened
from nmt.config.choices import registered_name
from nmt.config.commands import folders
from nmt.config.decoding import DecodingConfig
from nmt.config.paths import path_field
from nmt.errors import UserError


@dataclass
class LimitsConfig:
    """What one client, and all clients together, may ask of the server."""

    body_bytes: int = 1_048_576
    """Largest body of a request in bytes. A larger one has the answer 413."""
    held_bytes: int = 67_108_864
    """Largest number of bytes of all bodies that are being read, waiting or translated. Above it the answer
    is 503."""
    characters: int = 100_000
    """Most characters of all texts of a request. More have the answer 413."""
    sentences: int = 2_000
    """Most lines of all texts of a request. More have the answer 413."""
    waiting_sentences: int = 10_000
    """Most lines that wait for translation. If a request does not fit, the answer is 503 with Retry-After."""
    connections: int = 512
    """Most open connections. A further one has the answer 503 and is closed."""
    header_bytes: int = 32_768
    """Largest header of a request in bytes. A larger one has the answer 431."""
    header_seconds: float = 10.0
    """Seconds in which a client must send the header of a request. Afterwards the answer is 408."""
    body_seconds: float = 20.0
    """Seconds in which a client must send the body of a request. Afterwards the answer is 408."""
    request_seconds: float = 60.0
    """Seconds from the complete request to its answer. Afterwards the answer is 504, and the lines that still
    wait are dropped."""
    idle_seconds: int = 30
    """Seconds without a request after which a connection is closed."""
    drain_seconds: int = 90
    """Seconds that accepted requests have after SIGTERM."""
    alternatives: int = 9
    """Most further translations of a text (`alternatives` of a request)."""
    beam_size: int = 16
    """Largest `beam_size` of a request."""
    attention_characters: int = 1_000
    """Most characters of all texts of a request with `attention`. More have the answer 413."""

    def __post_init__(self) -> None:
        """Checks the values."""
        for key, low, high in (
            ("body_bytes", 1, 1 << 30),
            ("held_bytes", 1, 1 << 40),
            ("characters", 1, 1 << 30),
            ("sentences", 1, 1_000_000),
            ("waiting_sentences", 1, 100_000_000),
            ("connections", 1, 1_000_000),
            ("header_bytes", 1024, 1 << 20),
            ("idle_seconds", 1, 86_400),
            ("drain_seconds", 1, 86_400),
            ("alternatives", 0, 999),
            ("beam_size", 1, 1000),
            ("attention_characters", 0, 1 << 20),
        ):
            check(f"limits.{key}", getattr(self, key), between(low, high))
        for key in ("header_seconds", "body_seconds", "request_seconds"):
            check(f"limits.{key}", getattr(self, key), above(0, 86_400))


@dataclass
class ServeConfig:
    """Options of `nmt-serve`: the models, the address, the access, and limits of requests."""

    model_dir: Any = path_field("folder", "???", several=True)
    """Model folder, run folder, checkpoint or `hf://OWNER/NAME`. A list, `[DIR,DIR]`, has models of different
    languages. With `backend=ctranslate2`, also exports."""
    host: str = "127.0.0.1"
    """Address to listen on. The default is reached from this machine alone. `0.0.0.0`: from everywhere."""
    port: int = 5000
    """Port to listen on. 0: a free one; the log has its number."""
    api_key_file: str | None = path_field("file", None)
    """Text file with the key that every translation request must have as `api_key`. null: no key."""
    api_key_variable: str | None = None
    """Environment variable with the key, in place of `api_key_file`."""
    cors_origins: list[str] = field(default_factory=list)
    """Web sites whose pages may use the server, such as `[https://example.org]`; `["*"]`: all of them."""
    batch_wait_ms: float = 3.0
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
    threads: int = 0
    """CPU threads. 0: one per core."""
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def __post_init__(self) -> None:
        """Checks the values."""
        check("threads", self.threads, between(0, PROCESSES))
        check("port", self.port, between(0, 65_535))
        check("batch_wait_ms", self.batch_wait_ms, between(0, 10_000))
        folders("model_dir", self.model_dir)
        if not self.host or not self.host.isprintable() or " " in self.host:
            raise UserError(f"host={shortened(self.host)}: must be an address or a name, such as 127.0.0.1.")
        if self.api_key_file is not None and self.api_key_variable is not None:
            raise UserError("api_key_variable: the key is already in api_key_file. Give one of them.")
        if self.decoding.nbest > 1:
            raise UserError(
                f"decoding.nbest={self.decoding.nbest}: a request chooses its number of translations, with "
                "alternatives. Set decoding.nbest=1."
            )
        for key in ("samples", "mbr"):
            if value := getattr(self.decoding, key):
                raise UserError(
                    f"decoding.{key}={value}: is not available in nmt-serve. Remove it, or set it to "
                    f"{'0' if key == 'samples' else 'null'}."
                )
