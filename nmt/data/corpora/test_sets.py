"""Test sets of sacreBLEU, which downloads and caches them."""

from __future__ import annotations

import difflib
from pathlib import Path

from nmt.errors import UserError


def find_test_set(name: str, source_lang: str, target_lang: str, key: str) -> tuple[Path, Path]:
    """Finds a test set of sacreBLEU. The first use downloads it.

    Args:
        name: name of the test set, such as `wmt14/full`.
        source_lang: language code of the source side.
        target_lang: language code of the target side.
        key: full name of the option, for the message.

    Returns:
        The text files of the source and of the first reference.

    Raises:
        UserError: there is no such set, it lacks the languages, or it can't be downloaded.
    """
    from sacrebleu import utils
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=4, cutoff=0.4) or ["wmt14/full", "wmt20"]
        raise UserError(f"{key}={name}: not a test set of sacreBLEU. Did you mean {', '.join(near)}?")
    languages = f"{source_lang}-{target_lang}"
    pairs = utils.get_langpairs_for_testset(name)
    if languages not in pairs:
        raise UserError(f"{key}={name}: does not have {languages}, only {', '.join(sorted(pairs))}")
    try:
        source = utils.get_source_file(name, languages)
        references = utils.get_reference_files(name, languages)
    except (OSError, SystemExit) as error:  # sacreBLEU exits if a download is damaged
        raise UserError(
            f"{key}={name}: could not be downloaded to {utils.SACREBLEU_DIR} ({error}). Connect to the "
            f"network once, or give local files: {key.replace('sacrebleu', 'source')}= and target="
        ) from None
    return Path(source), Path(references[0])
