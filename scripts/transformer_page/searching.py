"""The beam search for the source of an example, step by step, with the functions of `nmt.decoding`."""

from __future__ import annotations

import torch
from page_tables import Table
from torch import Tensor

from nmt.config import DecodingConfig
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, FORBIDDEN_IDS
from nmt.decoding.beams import Beams, Rules, extend
from nmt.decoding.scorers import LengthPenalty
from nmt.decoding.search import Hypothesis, StepOutput, beam_search
from nmt.model.cpu.cached import CachedDecoderState
from nmt.search_processor import SearchInput
from transformer_page.example import Example, codes, shown

STEPS, BEAM = 4, 4
_OPTIONS = DecodingConfig(beam_size=BEAM, nbest=BEAM)


def beam_steps(example: Example) -> Table:
    """The hypotheses of the first steps: the newest log-probability, and the sum."""
    limit = len(example.source) + _OPTIONS.max_length_offset
    scorer = LengthPenalty(_OPTIONS.length_penalty)
    rules = Rules(BEAM, BEAM, scorer, BOS_ID, EOS_ID, torch.tensor(FORBIDDEN_IDS), [limit])
    beams, state = Beams.start(rules, torch.device("cpu")), example.model.start(example.batch)
    rows = []
    for length in range(1, STEPS + 1):
        log_probs, state = example.model.step(beams.ids[:, :, -1], state)
        extension = extend(beams, log_probs, length, rules)
        before, rows_of = beams.log_probs[0], extension.rows(beams.ids.shape[1])
        beams, state = extension.beams, state.select(rows_of)
        for place, (ids, total) in enumerate(zip(beams.ids[0], beams.log_probs[0], strict=True)):
            pieces = " ".join(codes(example.tokenizer.target.pieces_of(ids[1:].tolist())))
            newest = total - before[extension.parents[0, place]]
            rows.append([str(length), pieces, shown(newest), shown(total)])
    return Table(rows)


def translations(example: Example) -> Table:
    """The complete hypotheses, best first: length, log-probability, length penalty and score."""
    rows = []
    for hypothesis in hypotheses(example):
        [text] = example.tokenizer.decode_target([hypothesis.ids])
        length = len(hypothesis.ids) + 1
        penalty = LengthPenalty(_OPTIONS.length_penalty).penalty(length)
        numbers = shown(hypothesis.log_prob), shown(penalty, 3), shown(hypothesis.score)
        rows.append([text, str(length), *numbers])
    return Table(rows)


def hypotheses(example: Example) -> list[Hypothesis]:
    """The result of the beam search."""
    model, source = example.model, example.batch.source_ids.tolist()[:-1]

    def step(
        ids: Tensor, state: CachedDecoderState, *, attention: bool = False
    ) -> StepOutput[CachedDecoderState]:
        return StepOutput(*model.step(ids, state))

    limit = len(example.source) + _OPTIONS.max_length_offset
    search = SearchInput(1, [source], [limit], BOS_ID, EOS_ID, torch.device("cpu"))
    return beam_search(step, model.start(example.batch), search, _OPTIONS, forbidden=FORBIDDEN_IDS)[0]
