"""The record of a run folder, with literal files; and the commands, which give its options again."""

import json
import shlex

import pytest

from nmt.config import TrainConfig
from nmt.config.storage import to_plain, to_yaml
from nmt.errors import UserError
from nmt.options.arguments import Arguments
from nmt.options.compose import compose_jobs
from nmt.reports.run import RunRecord

RECORDS = """\
{"kind": "train", "update": 50, "time": 100.0, "loss": 8.5, "learning_rate": 0.001}
{"kind": "valid", "update": 50, "time": 101.0, "loss": 7.5, "bleu": null, "samples": []}
{"kind": "train", "update": 100, "time": 110.0, "loss": null, "learning_rate": 0.002}
{"kind": "valid", "update": 100, "time": 111.0, "loss": 6.5, "bleu": 12.25, "samples": []}
"""
DATA = ["data=local", "data.source_lang=en", "data.target_lang=de", "data.train.source=a.en"]


def composed(*words):
    (config,) = compose_jobs(TrainConfig, "train", Arguments(words))
    return config


@pytest.fixture
def folder(tmp_path):
    config = composed(
        *DATA,
        "data.train.target=b.de",
        "run_dir=runs/x",
        "recipe=none",
        "training.rdrop=5",
        "training.precision=bf16",
    )
    config.data.tokenizer.vocab_size, config.training.half_residual = 4000, False
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    (tmp_path / "metrics.jsonl").write_text(RECORDS + '{"kind": "tr')
    return tmp_path


def test_record_of_an_unfinished_run(folder):
    run = RunRecord.read(folder)
    assert [*run.results, *run.data, *run.diagnosis] == []
    assert run.series("train", "loss") == [(50, 8.5)]
    assert run.series("train", "learning_rate") == [(50, 0.001), (100, 0.002)]
    assert run.series("valid", "loss") == [(50, 7.5), (100, 6.5)]
    assert run.series("valid", "bleu") == [(100, 12.25)]
    assert run.changed == {
        "data.name": "local",
        "data.source_lang": "en",
        "data.target_lang": "de",
        "data.train.source": "a.en",
        "data.train.target": "b.de",
        "data.tokenizer.vocab_size": 4000,
        "training.precision": "bf16",
        "training.rdrop": 5.0,
    }
    assert run.commands() == [
        "nmt-train data=local recipe=none data.source_lang=en data.target_lang=de data.train.source=a.en "
        "data.train.target=b.de data.tokenizer.vocab_size=4000 training.precision=bf16 "
        "training.rdrop=5.0 run_dir=runs/x",
        "nmt-eval model_dir=runs/x",
        "nmt-translate model_dir=runs/x",
    ]


def test_the_sections_of_a_finished_run(folder):
    finding = {"name": "overfitted", "finding": "f", "evidence": "e", "option": "training.patience=3"}
    results = {"test": {"bleu": 27.5}, "diagnosis": [finding]}
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "data_report.json").write_text('{"pairs": 10, "kept": 9}')
    run = RunRecord.read(str(folder))
    assert (run.results["test"], run.diagnosis, run.data["kept"]) == ({"bleu": 27.5}, [finding], 9)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("results.json", "{", r"results\.json: is damaged: .*\. Copy the file again\."),
        ("results.json", '{"test": 1}', r"results\.json: is damaged: test is not a section\."),
        ("data_report.json", "[]", r"data_report\.json: is damaged: it has no sections\."),
        ("metrics.jsonl", '{"kind": "train", "update": 1}\n{}\n', r"metrics\.jsonl:2: is damaged: .*kind"),
        ("metrics.jsonl", "[]\n", r"metrics\.jsonl:1: is damaged"),
        ("config.yaml", "{}: [", r"config\.yaml: is damaged"),
    ],
)
def test_damaged_files_are_named(folder, name, text, message):
    (folder / name).write_text(text)
    with pytest.raises(UserError, match=message):
        RunRecord.read(folder)


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"not a run folder: it has no config\.yaml"):
        RunRecord.read(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["data.train.source=[a.en,'b, c.en']", "data.train.target='[x].de'", "name=it's mine"],
        ["data.train.source=null.en", "data.train.target=a b.de", "name='null'", 'run_dir=$HOME/"x'],
        ["data.train.corpora.news.path=n.tsv", "data.train.corpora.news.weight=2", "data.train.source=null"],
        ["decoding.processors.mine={}", "decoding.processors.other={alpha: 0.5, names: [a,'b c']}"],
        ["data.tokenizer.normalization={source: nfkc, target: identity}", "plugins=[a.b,c]"],
        ["model/positions=relative", "model.positions.options.max_distance=4", "training.budget=10m"],
        [
            "model=tiny",
            "training.schedule.name=wsd",
            "training.loggers=[]",
            "data.hub.name='12'",
            "data.sampling.alpha=0.1",
        ],
    ],
)
def test_the_command_gives_the_same_options(tmp_path, words):
    config = composed(*DATA, "data.tokenizer.vocab_size=800", "recipe=none", *words)
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    command, *_ = RunRecord.read(tmp_path).commands()
    program, *again = shlex.split(command)
    assert program == "nmt-train"
    assert to_plain(composed(*again)) == to_plain(config)
