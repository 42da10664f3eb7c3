"""Models learn to write full-width punctuation and joiners, which a normalised target would lose."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from sentencepiece import SentencePieceNormalizer
from toy import WORDS, toy_config

from nmt.config import Average, AveragingConfig, ScheduleConfig
from nmt.data.corpora.text import read_lines
from nmt.evaluation.metrics import metrics_for
from nmt.evaluation.scores import score_of
from nmt.training.run import train

PHRASES = {
    "zh": (
        "苹果， 红茶。 “是的” （三个） 价格：￥３５０； 很好…… 真的吗？ 谢谢！ 《书》 ２５℃ 自行车、 上海～ "
        "№５ ５０％ 三本书 ＡＢＣ 〔中国〕 约½ ①② 今天"
    ),
    "fa": (
        "می\u200cخواهم کتاب\u200cها خانه\u200cی نمی\u200cرود… آن\u200cها «سیب» چای، آیا؟ ۱۲۳٫۵ گربه\u200cهای "
        "خوب\u200cاند؛ می\u200cبینم شهر بزرگ\u200cتر ۵۰٪ ماشین دوست\u200cان روز می\u200cروم ﷼"
    ),
}


def write_corpus(folder: Path, language: str) -> Path:
    """Writes pairs of which each source word stands for one phrase."""
    folder.mkdir()
    phrases, chance = PHRASES[language].split(" "), random.Random(1)
    assert len(phrases) == 20
    for split, count in (("train", 5000), ("valid", 40), ("test", 60)):
        rows = [chance.sample(range(20), k=chance.randint(2, 6)) for _ in range(count)]
        space = "" if language == "zh" else " "
        for side, words, joined in (("src", WORDS, " "), ("tgt", phrases, space)):
            lines = (joined.join(words[number] for number in row) for row in rows)
            (folder / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("language", PHRASES)
def test_a_model_writes_the_characters_of_its_targets(language: str, tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "data", language)
    config = toy_config(
        data,
        tmp_path / "run",
        dropout=0.0,
        max_updates=1200,
        validate_every=600,
        checkpoint_every=50,
        averaging=AveragingConfig(kind=Average.last, count=3),
        schedule=ScheduleConfig(name="linear", peak=4e-3, warmup_updates=50, final=1e-4),
    )
    tokenizer = replace(config.data.tokenizer, vocab_size=460)
    train(replace(config, data=replace(config.data, target_lang=language, tokenizer=tokenizer)))
    results = json.loads((tmp_path / "run/results.json").read_text("utf-8"))
    assert results["test"]["bleu"] >= 99.5
    references = list(read_lines(data / "test.tgt"))
    normalizer = SentencePieceNormalizer(rule_name="nmt_nfkc")
    normalised = [normalizer.normalize(line) for line in references]
    bleu = metrics_for(language, config.evaluation, ["bleu"])["bleu"]
    best_of_one_rule = score_of(bleu, normalised, [references], [])
    assert best_of_one_rule is not None and best_of_one_rule < 70
