"""UTF-8 in a search: forbids ids after which the byte pieces of a hypothesis could not become characters.

A tokenizer with byte fallback writes a rare character as two to four byte pieces, by UTF-8 (RFC 3629). A
model may give other bytes a probability, or an end within a character. Such text decodes to U+FFFD. So these
ids are forbidden to a hypothesis:

- a byte that begins no character, or does not continue the one that has begun;
- any other piece, and EOS, within a character;
- a first byte whose character would exceed the maximum length.

The bytes of U+FFFD are forbidden too: a reader can't tell it from an error. A prefix may have any ids.

Shapes: B unfinished sentences, K hypotheses per sentence, V ids, t ids of every hypothesis, BOS counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BYTE = re.compile("<0x([0-9A-F]{2})>")
_OTHER = 256  # the class of pieces that are not bytes
_NEVER = -1

# The states between two bytes. Each has the bytes that may follow: first, last, and the next state. State 0
# is the boundary between two characters. In the states 1 to 3, that number of bytes is missing.
_BYTES_OF_STATES: tuple[tuple[tuple[int, int, int], ...], ...] = (
    (
        (0x00, 0x7F, 0),
        (0xC2, 0xDF, 1),  # C0 and C1 would begin overlong forms
        (0xE0, 0xE0, 4),
        (0xE1, 0xEC, 2),
        (0xED, 0xED, 5),
        (0xEE, 0xEE, 2),
        (0xEF, 0xEF, 6),
        (0xF0, 0xF0, 8),
        (0xF1, 0xF3, 3),
        (0xF4, 0xF4, 9),
    ),
    ((0x80, 0xBF, 0),),
    ((0x80, 0xBF, 1),),
    ((0x80, 0xBF, 2),),
    ((0xA0, 0xBF, 1),),  # after E0: no overlong form
    ((0x80, 0x9F, 1),),  # after ED: no surrogate
    ((0x80, 0xBE, 1), (0xBF, 0xBF, 7)),  # after EF
    ((0x80, 0xBC, 0), (0xBE, 0xBF, 0)),  # after EF BF: not U+FFFD
    ((0x90, 0xBF, 2),),  # after F0: no overlong form
    ((0x80, 0x8F, 2),),  # after F4: at most U+10FFFF
)
_MISSING = (0, 1, 2, 3, 2, 2, 2, 1, 3, 3)  # the bytes that each state needs
_LONGEST = 4  # bytes of a character
_PREFIX = -1  # the last row of `Utf8.forbidden`
_WINDOW = _LONGEST - 1  # the state depends on this many last ids at most


class Utf8:
    """The rules for the ids of a vocabulary.

    A byte that the vocabulary lacks is never allowed, nor is one that leads to no complete character.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self._classes = np.full(len(pieces), _OTHER, np.int16)
        for number, piece in enumerate(pieces):
            if match := _BYTE.fullmatch(piece):
                self._classes[number] = int(match[1], 16)
        self._next = _next_states(np.isin(np.arange(_OTHER), self._classes))
        self._is_part = (self._classes >= 0x80) & (self._classes < _OTHER)

    @property
    def parts(self) -> list[int]:
        """The ids of the bytes beyond ASCII, of which characters have two or more."""
        return np.flatnonzero(self._is_part).tolist()

    def whole(self, ids: Sequence[int]) -> Sequence[int]:
        """Returns the longest beginning of a translation, given without EOS, that is UTF-8."""
        state = end = 0
        for place, id in enumerate(ids):
            state = int(self._next[state, self._classes[id]])
            if state == _NEVER:
                break
            end = end if state else place + 1
        return ids[:end]

    def wrong(self, ids: Sequence[int]) -> Sequence[int]:
        """Returns the first ids of a translation that are not UTF-8 wherever they occur; empty: none are.

        They are a character and the id that can't follow, or the bytes of one that has begun and that id. A
        byte at the beginning is returned alone. An incomplete character at the end is not wrong.
        """
        begin = end = len(self.whole(ids))
        state = 0
        for place in range(end, len(ids)):
            state = int(self._next[state, self._classes[ids[place]]])
            if state != _NEVER:
                continue
            if place == end:
                begin = max(0, end - 1)
                while begin and 0x80 <= self._classes[ids[begin]] < 0xC0:
                    begin -= 1
            return ids[begin : place + 1]
        return ()

    def num_missing(self, ids: Sequence[int]) -> int:
        """Returns the number of bytes that the last character of some ids lacks."""
        return _MISSING[int(self.states(np.array([ids[-_WINDOW:]], np.int64))[0])] if ids else 0

    def states(self, ids: NDArray[np.int64]) -> NDArray[np.int8]:
        """Returns the state after the last ids of hypotheses, (..., 3 or fewer) → (...)."""
        state = np.zeros(ids.shape[:-1], np.int8)
        if self._is_part[ids[..., -1]].any():
            for column in range(ids.shape[-1]):
                # Ids before the first byte of a character leave state 0, even if they end another one.
                state = self._next[state, self._classes[ids[..., column]]].clip(0)
        return state

    def forbidden(self) -> NDArray[np.bool_]:
        """Returns the ids that are forbidden, (10 + 3 + 1, V).

        The rows are the states, the boundary with room for 1 to 3 ids, and a prefix, which forbids nothing.
        """
        after = self._next[:, self._classes]  # (states, V)
        sizes = 1 + np.array(_MISSING)[after[0].clip(0)]
        tight = [(after[0] == _NEVER) | (sizes > room) for room in range(1, _LONGEST)]
        return np.concatenate([after == _NEVER, tight, np.zeros((1, after.shape[1]), np.bool_)])


def _next_states(exists: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Returns the next state for each state and byte, and for other pieces; `exists` has the bytes (256,)."""
    table = np.full((len(_BYTES_OF_STATES), _OTHER + 1), _NEVER, np.int8)
    table[0, _OTHER] = 0
    for state, ranges in enumerate(_BYTES_OF_STATES):
        for first, last, following in ranges:
            table[state, first : last + 1] = np.where(exists[first : last + 1], following, _NEVER)
    for _ in range(_LONGEST):
        dead = np.flatnonzero((table == _NEVER).all(1))
        table[np.isin(table, dead)] = _NEVER
    return table


class Characters:
    """Applies the rules to the hypotheses of a search; `start` returns the object of one search.

    Their states are computed on the CPU from the newest ids, which are copied from the device while that
    computes the step of the model. Only hypotheses within a character, or near their maximum length, get a
    row of a mask. Without any, a step costs one operator, which fills the columns of some bytes.

    Args:
        rules: those of the vocabulary; an attribute.
        device: that of the searches.
    """

    def __init__(self, rules: Utf8, device: torch.device) -> None:
        forbidden = torch.from_numpy(rules.forbidden())
        self.rules = rules
        self._starts = forbidden[0].nonzero()[:, 0].to(device)  # ids that are forbidden at a boundary
        self._forbidden = forbidden.to(device)
        self._ends = self._begins = np.zeros(0, np.int64)

    @classmethod
    def of(cls, pieces: Sequence[str], device: torch.device) -> Characters | None:
        """Returns the rules for a vocabulary; None if it has no byte pieces beyond ASCII."""
        rules = Utf8(pieces)
        return cls(rules, device) if rules.parts else None

    def start(self, ends: Sequence[int], begins: Sequence[int] | None = None) -> Characters:
        """Returns the rules of one search.

        Args:
            ends: for each sentence the number of ids after BOS, EOS counted, before which its characters end:
                the maximum length, or less where other ids need the rest.
            begins: for each sentence the number of ids of its prefix; None: 0.
        """
        search = copy(self)
        search._ends = np.array(ends)
        search._begins = np.zeros_like(search._ends) if begins is None else np.array(begins)
        return search

    def read(self, ids: Tensor) -> NewestIds:
        """Begins to copy the newest of the ids (B, K, t)."""
        return NewestIds(ids[:, :, -_WINDOW:])

    def mask(self, log_probs: Tensor, newest: NewestIds, length: int, sentences: Sequence[int]) -> None:
        """Forbids ids in the log-probabilities (B, K, V) of the next id, in place.

        Args:
            log_probs: those of the model.
            newest: what `read` returned for the hypotheses.
            length: the number of ids after BOS that a hypothesis has after this step.
            sentences: the number of the sentence of each row.
        """
        rows = self.rules.states(newest.read())
        if length > self._ends.min() - _LONGEST or length <= self._begins.max():
            room = (self._ends[np.array(sentences)] - length)[:, None]
            tight = len(_MISSING) - 1 + room.clip(1)
            rows = np.where((rows == 0) & (room < _LONGEST), tight, rows)
            rows = np.where((self._begins[np.array(sentences)] >= length)[:, None], _PREFIX, rows)
        if not rows.any():
            log_probs.index_fill_(2, self._starts, -torch.inf)
            return
        places = rows.nonzero()
        where = (torch.from_numpy(array).to(log_probs.device) for array in (*places, rows[places]))
        sentence, hypothesis, kinds = where
        own = log_probs[sentence, hypothesis].masked_fill_(self._forbidden[kinds.long()], -torch.inf)
        log_probs.index_fill_(2, self._starts, -torch.inf)
        log_probs[sentence, hypothesis] = own


class NewestIds:
    """Ids on their way from a device to the CPU."""

    def __init__(self, ids: Tensor) -> None:
        # Only CUDA has the event; elsewhere the copy waits.
        self._ids = ids.to("cpu", non_blocking=ids.is_cuda)
        self._arrived = _event() if ids.is_cuda else None
        if self._arrived is not None:
            # The GPU of the ids need not be the current one, such as with device=cuda:1.
            self._arrived.record(torch.cuda.current_stream(ids.device))

    def read(self) -> NDArray[np.int64]:
        """Waits for the copy, not for work that was queued after it."""
        if self._arrived is not None:
            self._arrived.synchronize()
        array: NDArray[np.int64] = self._ids.numpy()
        return array


_event: Callable[[], Any] = torch.cuda.Event
