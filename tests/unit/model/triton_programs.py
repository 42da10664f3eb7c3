"""Kernels of Triton: programs that interpret them, each in a process of its own, and their compilation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def interpreted(program: str) -> list[dict[str, Any]]:
    """Runs a program of this folder in Triton's interpreter; returns the JSON objects that it prints."""
    command = [sys.executable, Path(__file__).with_name(program)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 0, result.stderr
    return list(map(json.loads, result.stdout.splitlines()))


def compiled(
    function: Any,
    types: Mapping[str, str],
    constants: dict[str, Any],
    capability: int,
    *,
    aligned: bool = False,
    **options: int,
) -> Any:
    """Compiles a kernel for GPUs of a compute capability.

    Args:
        function: the kernel.
        types: the types of its arguments; all others but the constants are 32-bit integers.
        constants: its constants.
        capability: ten times the compute capability.
        aligned: whether all pointers are multiples of 16, as those of torch are.
        options: options of the compiler.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kinds = {**types, **dict.fromkeys(constants, "constexpr")}
    signature = {name: kinds.get(name, "i32") for name in function.arg_names}
    pointers = [place for place, kind in enumerate(signature.values()) if "*" in kind]
    known = {(place,): [["tt.divisibility", 16]] for place in pointers} if aligned else None
    kernel = triton.compile(
        ASTSource(function, signature, constants, known),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": 4, **options},
    )
    assert len(kernel.asm["cubin"]) > 1000
    return kernel
