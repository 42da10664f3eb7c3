"""Test sets by name, fetched and kept by sacreBLEU."""

from __future__ import annotations

import difflib
from pathlib import Path

from nmt.errors import UserError


def find_test_set(name: str, source_lang: str, target_lang: str, key: str) -> tuple[Path, Path]:
    """Finds a test set of sacreBLEU, downloading it at first use.

    Args:
        name: its name, such as `wmt14/full`.
        source_lang: language code of the source side.
        target_lang: language code of the target side.
        key: full name of the option, for the message.

    Returns:
        The text files of source and reference; of several references the first.

    Raises:
        UserError: there is no such set, it lacks the languages, or it cannot be fetched.
    """
    from sacrebleu import utils
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=4, cutoff=0.4) or ["wmt14/full", "wmt20"]
        raise UserError(f"{key}={name}: sacreBLEU has no such test set; did you mean {', '.join(near)}?")
    languages = f"{source_lang}-{target_lang}"
    pairs = utils.get_langpairs_for_testset(name)
    if languages not in pairs:
        raise UserError(f"{key}={name}: has no {languages}, only {', '.join(sorted(pairs))}")
    try:
        source = utils.get_source_file(name, languages)
        references = utils.get_reference_files(name, languages)
    except (OSError, SystemExit) as error:  # it ends the process where a download is damaged
        raise UserError(
            f"{key}={name}: could not be fetched into {utils.SACREBLEU_DIR} ({error}): connect to the "
            f"network once, or give local files: {key.replace('sacrebleu', 'source')}= and target="
        ) from None
    return Path(source), Path(references[0])
