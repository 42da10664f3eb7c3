"""The YAML header of a card, from which the hub reads languages, licence, data sets and scores."""

from __future__ import annotations

import re
from typing import Any

from nmt.card.facts import HUB_ID, SPLITS, Score, Subject, corpora, language_pairs, scores
from nmt.card.markdown import line

_LICENCES = frozenset(
    (
        "apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m openrail++ afl-3.0 artistic-2.0 "
        "bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5 "
        "cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 "
        "cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 ecl-2.0 epl-1.0 "
        "epl-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc lppl-1.3c "
        "ms-pl mpl-2.0 odc-by odbl ofl-1.1 osl-3.0 postgresql ncsa unlicense zlib pddl wtfpl unknown other"
    ).split()
)
"""The identifiers that the hub knows. It refuses others; these are written as `other` and a name."""


def header(subject: Subject, library: str) -> dict[str, Any]:
    """Returns the header of a card; `library` is the name of the engine on the hub."""
    config, results = subject.config, subject.results
    codes = list(dict.fromkeys(code for pair in language_pairs(config) for code in pair if code))
    bases = dict.fromkeys(re.split("[-_]", code)[0].lower() for code in codes)
    fields: dict[str, Any] = {"language": list(bases)}
    if any(code not in bases for code in codes):  # the hub takes only the base of a code as a language
        fields["language_bcp47"] = [code.replace("_", "-") for code in codes]
    if config.licence:
        known = config.licence.lower() in _LICENCES
        fields["license"] = config.licence.lower() if known else "other"
        if not known:
            fields["license_name"] = config.licence
    fields |= {"library_name": library, "pipeline_tag": "translation", "tags": ["translation", "nmt"]}
    hubs = [facts.get("hub") for split in SPLITS for facts in corpora(results, split).values()]
    if names := list(dict.fromkeys(one for one in hubs if isinstance(one, str) and HUB_ID.fullmatch(one))):
        fields["datasets"] = names
    found = [*scores(results)]
    if found:
        fields["metrics"] = list(dict.fromkeys(line(one.metric) for one in found))
        fields["model-index"] = [{"name": config.name, "results": _index(subject, found)}]
    return fields


def _index(subject: Subject, scores: list[Score]) -> list[dict[str, Any]]:
    """Returns the scores in the form of the hub: an entry for each split."""
    data, entries = subject.config.data, []
    for split in dict.fromkeys(one.split for one in scores):
        facts = next(iter(corpora(subject.results, split).values()), {})
        hub = facts.get("hub")
        title = f"Translation {data.source_lang}-{data.target_lang}"
        entries.append(
            {
                "task": {"type": "translation", "name": title},
                "dataset": {
                    "type": hub if isinstance(hub, str) and HUB_ID.fullmatch(hub) else "text",
                    "name": line(facts.get("corpus") or f"{data.name} {split}"),
                    "split": split,
                },
                "metrics": [
                    {
                        "type": line(one.metric),
                        "value": round(one.value, 2),
                        "name": line(one.metric),
                        "args": {"signature": line(one.signature)},
                    }
                    for one in scores
                    if one.split == split
                ],
            }
        )
    return entries
