"""English names of languages, for the list of languages."""

from __future__ import annotations

_NAMES = (
    "af Afrikaans|am Amharic|ar Arabic|az Azerbaijani|be Belarusian|bg Bulgarian|bn Bengali|bs Bosnian|"
    "ca Catalan|cs Czech|cy Welsh|da Danish|de German|el Greek|en English|eo Esperanto|es Spanish|"
    "et Estonian|eu Basque|fa Persian|fi Finnish|fr French|ga Irish|gl Galician|gu Gujarati|ha Hausa|"
    "he Hebrew|hi Hindi|hr Croatian|hu Hungarian|hy Armenian|id Indonesian|ig Igbo|is Icelandic|"
    "it Italian|ja Japanese|jv Javanese|ka Georgian|kk Kazakh|km Khmer|kn Kannada|ko Korean|ky Kyrgyz|"
    "la Latin|lb Luxembourgish|lo Lao|lt Lithuanian|lv Latvian|mg Malagasy|mi Maori|mk Macedonian|"
    "ml Malayalam|mn Mongolian|mr Marathi|ms Malay|mt Maltese|my Burmese|nb Norwegian Bokmål|ne Nepali|"
    "nl Dutch|nn Norwegian Nynorsk|no Norwegian|oc Occitan|pa Punjabi|pl Polish|ps Pashto|"
    "pt Portuguese|ro Romanian|ru Russian|rw Kinyarwanda|si Sinhala|sk Slovak|sl Slovenian|so Somali|"
    "sq Albanian|sr Serbian|st Sesotho|su Sundanese|sv Swedish|sw Swahili|ta Tamil|te Telugu|tg Tajik|"
    "th Thai|tk Turkmen|tl Tagalog|tr Turkish|tt Tatar|ug Uyghur|uk Ukrainian|ur Urdu|uz Uzbek|"
    "vi Vietnamese|xh Xhosa|yi Yiddish|yo Yoruba|zh Chinese|zu Zulu"
)
NAMES: dict[str, str] = dict(one.split(" ", 1) for one in _NAMES.split("|"))
"""ISO 639-1 code → name."""


def language_name(code: str) -> str:
    """Returns the English name of a language; its code if the name is not known.

    Args:
        code: of ISO 639 or BCP 47, such as `de` or `pt-BR`.
    """
    base, _, region = code.replace("_", "-").partition("-")
    name = NAMES.get(base.lower())
    if name is None:
        return code
    return f"{name} ({region})" if region else name
