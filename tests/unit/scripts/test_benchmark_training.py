"""The results of the benchmark of training."""

from __future__ import annotations

from benchmark_training import Row, summary, table


def row(system: str, precision: str, speed: int) -> Row:
    return Row(system, "base", precision, 0, speed, speed - 1, speed + 1, 2_000_000_000, 0.5)


def test_a_row_is_the_median_of_its_rounds() -> None:
    rounds = [((30.0, 100, 0), 700), ((10.0, 100, 0), 400), ((20.0, 200, 0), 500)]
    assert summary("nmt", "base", "fp32", rounds, 0.01) == Row("nmt", "base", "fp32", 0, 20, 10, 30, 300, 0.2)


def test_memory_of_a_device_is_what_it_says_itself() -> None:
    assert summary("nmt", "base", "bf16", [((1.0, 100, 77), 700)], 0.5).peak_bytes == 77


def test_ratios_are_within_a_precision_and_last_against_fp32() -> None:
    rows = [row("nmt", "fp32", 1110), row("torch", "fp32", 555), row("nmt", "bf16", 1800)]
    lines = table([*rows, row("torch", "bf16", 1200), row("transformers", "bf16", 900)]).splitlines()
    assert [line.split()[-1] for line in lines[1:6]] == ["50.0%", "2.00x", "50.0%", "1.50x", "2.00x"]
    assert lines[2].split() == ["base", "fp32", "torch", "555", "554-556", "2,000", "50.0%", "2.00x"]
    assert lines[6:] == ["base: nmt in bf16 is 3.24x as fast as the best other system in fp32"]


def test_without_fp32_or_without_nmt_there_is_nothing_to_compare() -> None:
    assert len(table([row("nmt", "bf16", 2), row("torch", "bf16", 1)]).splitlines()) == 3
    assert len(table([row("torch", "fp32", 2), row("torch", "bf16", 1)]).splitlines()) == 3
