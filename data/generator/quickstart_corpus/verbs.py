"""The verbs of the lexicon: their forms in both languages and the participants they take."""

from typing import Any

from quickstart_corpus.words import Case, Group, Kind, Relation, Tense, Verb

_K = Kind
_GOODS = (_K.CLOTHES, _K.VEHICLE, _K.FURNITURE, _K.DEVICE)
_STATE: dict[str, Any] = {"simple": True, "modal": False, "tenses": (Tense.PRESENT, Tense.PAST, Tense.FUTURE)}
_FEELING: dict[str, Any] = {"simple": True, "modal": False, "tenses": (Tense.PRESENT,), "definite": True}
_TIMETABLE = _STATE


def _kinds(names: str) -> tuple[Kind, ...]:
    return tuple(Kind[name.upper()] for name in names.split())


def _verb(english: str, german: str, objects: str = "", **frame: Any) -> Verb:
    """Reads "base past participle [particle]" and "[prefix|]infinitive third participle"."""
    base, past, participle, *particle = english.split()
    prefix, _, forms = german.rpartition("|")
    infinitive, third, perfect = forms.split()
    return Verb(
        english=base,
        past=past,
        participle=participle,
        particle=" ".join(particle),
        german=infinitive,
        third=third,
        perfect=prefix + perfect,
        prefix=prefix,
        objects=_kinds(objects),
        **frame,
    )


def _about(english: str, german: str, case: Case = Case.ACC) -> Relation:
    return Relation(english, german, case)


_HOME, _TOWN, _WORK, _SHOP, _CITY, _LEISURE = Group

TRANSITIVE = (
    _verb("read read read", "lesen liest gelesen", "text", places=(_HOME, _WORK, _LEISURE)),
    _verb("write wrote written", "schreiben schreibt geschrieben", "written", places=(_HOME, _WORK)),
    _verb(
        "buy bought bought",
        "kaufen kauft gekauft",
        "food clothes vehicle furniture device",
        extra=("book", "newspaper", "ticket", "camera", "present", "bag"),
        places=(_SHOP,),
    ),
    _verb(
        "sell sold sold",
        "verkaufen verkauft verkauft",
        "vehicle furniture device",
        extra=("house", "picture", "clock", "camera", "horse"),
    ),
    _verb(
        "look looked looked for",
        "suchen sucht gesucht",
        "item clothes animal",
        extra=("child", "boy", "book"),
        places=(_HOME, _WORK),
    ),
    _verb(
        "find found found", "finden findet gefunden", "item clothes animal", places=(_HOME, _WORK, _LEISURE)
    ),
    _verb(
        "lose lost lost",
        "verlieren verliert verloren",
        "item",
        extra=("hat", "jacket", "letter"),
        places=(_TOWN,),
        tenses=(Tense.PERFECT, Tense.PAST),
        modal=False,
        definite=True,
    ),
    _verb(
        "need needed needed", "brauchen braucht gebraucht", "clothes vehicle furniture device item", **_STATE
    ),
    _verb("have had had", "haben hat gehabt", "vehicle animal item device", **_STATE),
    _verb(
        "see saw seen",
        "sehen sieht gesehen",
        "person animal transport",
        extra=("film", "museum"),
        simple=True,
        places=(_LEISURE,),
        tenses=(Tense.PRESENT, Tense.PERFECT, Tense.PAST),
    ),
    _verb("eat ate eaten", "essen isst gegessen", "food", places=(_HOME,)),
    _verb("drink drank drunk", "trinken trinkt getrunken", "drink", places=(_HOME, _LEISURE)),
    _verb("order ordered ordered", "bestellen bestellt bestellt", "drink cooked", extra=("pizza", "cake")),
    _verb("cook cooked cooked", "kochen kocht gekocht", "cooked", places=(_HOME,)),
    _verb("bake baked baked", "backen backt gebacken", "baked"),
    _verb("open opened opened", "öffnen öffnet geöffnet", "opening", definite=True),
    _verb("close closed closed", "schließen schließt geschlossen", "opening", definite=True),
    _verb("turn turned turned on", "ein|schalten schaltet geschaltet", "device", definite=True),
    _verb("turn turned turned off", "aus|schalten schaltet geschaltet", "device", definite=True),
    _verb("call called called", "an|rufen ruft gerufen", "person"),
    _verb("pick picked picked up", "ab|holen holt geholt", "person", places=(_TOWN,)),
    _verb(
        "visit visited visited",
        "besuchen besucht besucht",
        "person",
        extra=("museum", "village", "city", "school"),
        definite=True,
    ),
    _verb("invite invited invited", "ein|laden lädt geladen", "person"),
    _verb(
        "know knew known",
        "kennen kennt gekannt",
        "person",
        extra=("book", "film", "song", "village", "rule"),
        **_FEELING,
    ),
    _verb(
        "understand understood understood",
        "verstehen versteht verstanden",
        "topic",
        extra=("film", "poem"),
        simple=True,
        definite=True,
    ),
    _verb(
        "forget forgot forgotten",
        "vergessen vergisst vergessen",
        "item",
        extra=("book", "question", "rule"),
        tenses=(Tense.PERFECT, Tense.PAST, Tense.FUTURE),
        modal=False,
        definite=True,
        places=(_TOWN,),
    ),
    _verb(
        "repair repaired repaired",
        "reparieren repariert repariert",
        "vehicle device",
        extra=("chair", "clock", "camera", "door"),
        places=(_HOME,),
    ),
    _verb(
        "wash washed washed",
        "waschen wäscht gewaschen",
        "clothes vehicle",
        extra=("dog", "horse"),
        definite=True,
    ),
    _verb(
        "clean cleaned cleaned",
        "putzen putzt geputzt",
        "room",
        extra=("window", "bicycle", "table"),
        definite=True,
    ),
    _verb("tidy tidied tidied up", "auf|räumen räumt geräumt", "room", extra=("cupboard",), definite=True),
    _verb(
        "pay paid paid for",
        "bezahlen bezahlt bezahlt",
        "drink",
        extra=("pizza", "ticket", "soup"),
        definite=True,
    ),
    _verb("wear wore worn", "tragen trägt getragen", "clothes"),
    _verb("carry carried carried", "tragen trägt getragen", "luggage", extra=("table", "chair", "bottle")),
    _verb(
        "paint painted painted",
        "malen malt gemalt",
        "animal",
        extra=("picture", "house", "boat", "garden"),
        places=(_LEISURE,),
    ),
    _verb("love loved loved", "lieben liebt geliebt", "person animal", extra=("city",), **_FEELING),
    _verb("try tried tried on", "an|probieren probiert probiert", "clothes"),
    _verb(
        "bring brought brought along",
        "mit|bringen bringt gebracht",
        "food",
        extra=("ball", "present", "camera"),
    ),
    _verb("sing sang sung", "singen singt gesungen", extra=("song",), places=(_TOWN,)),
)

DATIVE = (
    _verb("help helped helped", "helfen hilft geholfen", dative=True, places=(_HOME, _WORK)),
    _verb("thank thanked thanked", "danken dankt gedankt", dative=True),
    _verb("answer answered answered", "antworten antwortet geantwortet", dative=True),
    _verb("listen listened listened", "zu|hören hört gehört", dative=True, english_to="to"),
    _verb("follow followed followed", "folgen folgt gefolgt", dative=True, sein=True),
    _verb("congratulate congratulated congratulated", "gratulieren gratuliert gratuliert", dative=True),
)
DITRANSITIVE = (
    _verb(
        "give gave given", "geben gibt gegeben", dative=True, extra=("present", "key", "ball", "book", "bag")
    ),
    _verb(
        "show showed shown", "zeigen zeigt gezeigt", "item", dative=True, extra=("house", "letter", "garden")
    ),
    _verb(
        "send sent sent",
        "schicken schickt geschickt",
        dative=True,
        extra=("letter", "picture", "present", "report"),
    ),
    _verb(
        "lend lent lent",
        "leihen leiht geliehen",
        "vehicle",
        dative=True,
        extra=("book", "camera", "umbrella"),
    ),
    _verb(
        "explain explained explained",
        "erklären erklärt erklärt",
        "topic",
        dative=True,
        english_to="to",
        definite=True,
    ),
)
PREPOSITIONAL = (
    _verb(
        "wait waited waited",
        "warten wartet gewartet",
        "person transport",
        places=(_TOWN,),
        definite=True,
        preposition=_about("for", "auf"),
    ),
    _verb(
        "think thought thought",
        "denken denkt gedacht",
        "person event",
        definite=True,
        modal=False,
        preposition=_about("of", "an"),
    ),
    _verb(
        "talk talked talked",
        "sprechen spricht gesprochen",
        "person",
        places=(_TOWN, _HOME),
        preposition=_about("to", "mit", Case.DAT),
    ),
    _verb(
        "look looked looked forward",
        "freuen freut gefreut",
        "event",
        definite=True,
        modal=False,
        reflexive=True,
        tenses=(Tense.PRESENT,),
        preposition=_about("to", "auf"),
    ),
    _verb(
        "remember remembered remembered",
        "erinnern erinnert erinnert",
        "person event",
        definite=True,
        modal=False,
        simple=True,
        reflexive=True,
        tenses=(Tense.PRESENT,),
        preposition=_about("", "an"),
    ),
)
INTRANSITIVE = (
    _verb("sleep slept slept", "schlafen schläft geschlafen", places=(_HOME, _LEISURE)),
    _verb("work worked worked", "arbeiten arbeitet gearbeitet", places=(_WORK, _HOME, _CITY)),
    _verb("laugh laughed laughed", "lachen lacht gelacht", modal=False),
    _verb("dance danced danced", "tanzen tanzt getanzt", places=(_HOME, _TOWN)),
    _verb("play played played", "spielen spielt gespielt", places=(_LEISURE, _HOME)),
    _verb("get got got up", "auf|stehen steht gestanden", sein=True),
    _verb("fall fell fallen asleep", "ein|schlafen schläft geschlafen", sein=True, modal=False),
    _verb(
        "live lived lived",
        "wohnen wohnt gewohnt",
        places=(_CITY,),
        needs_place=True,
        simple=True,
        tenses=(Tense.PRESENT, Tense.PAST),
    ),
    _verb(
        "stay stayed stayed",
        "bleiben bleibt geblieben",
        places=(_HOME, _CITY, _WORK),
        needs_place=True,
        sein=True,
    ),
    _verb("come came come back", "zurück|kommen kommt gekommen", sein=True),
)
MOTION = (
    _verb(
        "go went gone",
        "gehen geht gegangen",
        places=(_TOWN, _WORK, _LEISURE, _SHOP, _HOME),
        goals=True,
        sein=True,
    ),
    _verb("drive drove driven", "fahren fährt gefahren", places=(_CITY, _TOWN), goals=True, sein=True),
    _verb("fly flew flown", "fliegen fliegt geflogen", goals=True, sein=True),
)
TIMETABLE = (
    _verb(
        "leave left left", "ab|fahren fährt gefahren", sein=True, subjects=_kinds("transport"), **_TIMETABLE
    ),
    _verb(
        "arrive arrived arrived",
        "an|kommen kommt gekommen",
        sein=True,
        subjects=_kinds("transport"),
        **_TIMETABLE,
    ),
    _verb("begin began begun", "an|fangen fängt gefangen", subjects=_kinds("event"), **_TIMETABLE),
    _verb("end ended ended", "enden endet geendet", subjects=_kinds("event"), **_TIMETABLE),
    _verb("take took taken place", "statt|finden findet gefunden", subjects=_kinds("event"), **_TIMETABLE),
)
ORDINARY = TRANSITIVE + DATIVE + DITRANSITIVE + PREPOSITIONAL + INTRANSITIVE + MOTION

BE = _verb("be was been", "sein ist gewesen", simple=True)
HAVE = TRANSITIVE[8]
COST = _verb("cost cost cost", "kosten kostet gekostet", simple=True)
BELONG = _verb("belong belonged belonged", "gehören gehört gehört", dative=True, english_to="to", simple=True)
RAIN = _verb("rain rained rained", "regnen regnet geregnet")
SNOW = _verb("snow snowed snowed", "schneien schneit geschneit")
EXIST = _verb("be was been", "geben gibt gegeben", simple=True)
PUT_UPRIGHT = _verb("put put put", "stellen stellt gestellt", "upright", goals=True)
PUT_FLAT = _verb("put put put", "legen legt gelegt", "flat", goals=True)
STAND = _verb("stand stood stood", "stehen steht gestanden", subjects=_kinds("upright"))
LIE = _verb("lie lay lain", "liegen liegt gelegen", subjects=_kinds("flat"))

KNOW_THAT = _verb("know knew known", "wissen weiß gewusst", simple=True)
BELIEVE = _verb("believe believed believed", "glauben glaubt geglaubt", simple=True)
HOPE = _verb("hope hoped hoped", "hoffen hofft gehofft", simple=True)
SAY = _verb("say said said", "sagen sagt gesagt", simple=True)
TELL = _verb("tell told told", "sagen sagt gesagt", simple=True, dative=True)
ASK = _verb("ask asked asked", "fragen fragt gefragt", simple=True)
TRY = _verb("try tried tried", "versuchen versucht versucht")
FORGET_TO = _verb("forget forgot forgotten", "vergessen vergisst vergessen", simple=True)
PROMISE = _verb("promise promised promised", "versprechen verspricht versprochen", simple=True)
