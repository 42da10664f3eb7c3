"""The nouns of the lexicon, one per line, and functions to look them up."""

from functools import cache

from quickstart_corpus.words import Gender, Kind, Noun

# english, plural ("-": adds s, "0": mass noun) | German, gender, plural, genitive ("~": n-declension) | kinds
_TABLE = """
man men          | Mann M Männer Mannes             | person
woman women      | Frau F Frauen Frau               | person
child children   | Kind N Kinder Kindes             | person
boy -            | Junge M Jungen ~                 | person
girl -           | Mädchen N Mädchen Mädchens       | person
teacher -        | Lehrer M Lehrer Lehrers          | person
doctor -         | Arzt M Ärzte Arztes              | person
student -        | Student M Studenten ~            | person
customer -       | Kunde M Kunden ~                 | person
guest -          | Gast M Gäste Gastes              | person
neighbour -      | Nachbar M Nachbarn ~             | person kin
colleague -      | Kollege M Kollegen ~             | person kin
friend -         | Freund M Freunde Freundes        | person kin
brother -        | Bruder M Brüder Bruders          | person kin
sister -         | Schwester F Schwestern Schwester | person kin
father 1         | Vater M 1 Vaters                 | person kin
mother 1         | Mutter F 1 Mutter                | person kin
uncle -          | Onkel M Onkel Onkels             | person kin
aunt -           | Tante F Tanten Tante             | person kin
grandfather 1    | Großvater M 1 Großvaters         | person kin
grandmother 1    | Großmutter F 1 Großmutter        | person kin
son -            | Sohn M Söhne Sohnes              | person kin
daughter -       | Tochter F Töchter Tochter        | person kin
apple -          | Apfel M Äpfel Apfels             | food
pear -           | Birne F Birnen Birne             | food
egg -            | Ei N Eier Eis                    | food cooked
fish 0           | Fisch M 0 Fisches                | food cooked
potato potatoes  | Kartoffel F Kartoffeln Kartoffel | food cooked
soup 0           | Suppe F 0 Suppe                  | food cooked
cake -           | Kuchen M Kuchen Kuchens          | food baked
pizza -          | Pizza F Pizzas Pizza             | food baked
bread 0          | Brot N 0 Brotes                  | food baked
water 0          | Wasser N 0 Wassers               | drink
milk 0           | Milch F 0 Milch                  | drink
coffee 0         | Kaffee M 0 Kaffees               | drink
tea 0            | Tee M 0 Tees                     | drink
juice 0          | Saft M 0 Saftes                  | drink
book -           | Buch N Bücher Buches             | text flat
letter -         | Brief M Briefe Briefes           | text written flat
newspaper -      | Zeitung F Zeitungen Zeitung      | text flat
report -         | Bericht M Berichte Berichts      | text written
poem -           | Gedicht N Gedichte Gedichts      | text written
novel -          | Roman M Romane Romans            | text written
lamp -           | Lampe F Lampen Lampe             | device upright
radio -          | Radio N Radios Radios            | device
computer -       | Computer M Computer Computers    | device
television -     | Fernseher M Fernseher Fernsehers | device
heater -         | Heizung F Heizungen Heizung      | device
car -            | Auto N Autos Autos               | vehicle
bicycle -        | Fahrrad N Fahrräder Fahrrads     | vehicle
motorcycle -     | Motorrad N Motorräder Motorrads  | vehicle
boat -           | Boot N Boote Boots               | vehicle
train -          | Zug M Züge Zuges                 | transport
bus buses        | Bus M Busse Busses               | transport
coat -           | Mantel M Mäntel Mantels          | clothes flat
shirt -          | Hemd N Hemden Hemdes             | clothes flat
dress dresses    | Kleid N Kleider Kleides          | clothes flat
hat -            | Hut M Hüte Hutes                 | clothes
jacket -         | Jacke F Jacken Jacke             | clothes flat
window -         | Fenster N Fenster Fensters       | opening
door -           | Tür F Türen Tür                  | opening
suitcase -       | Koffer M Koffer Koffers          | opening luggage
cupboard -       | Schrank M Schränke Schranks      | opening furniture
bottle -         | Flasche F Flaschen Flasche       | opening upright
table -          | Tisch M Tische Tisches           | furniture
chair -          | Stuhl M Stühle Stuhls            | furniture
bed -            | Bett N Betten Bettes             | furniture
key -            | Schlüssel M Schlüssel Schlüssels | item flat
bag -            | Tasche F Taschen Tasche          | item luggage
umbrella -       | Regenschirm M Regenschirme Regenschirms | item
ticket -         | Fahrkarte F Fahrkarten Fahrkarte | item flat
picture -        | Bild N Bilder Bildes             | item flat
camera -         | Kamera F Kameras Kamera          | item
clock -          | Uhr F Uhren Uhr                  | item
ball -           | Ball M Bälle Balls               | item
cup -            | Tasse F Tassen Tasse             | upright
vase -           | Vase F Vasen Vase                | upright
kitchen -        | Küche F Küchen Küche             | room
room -           | Zimmer N Zimmer Zimmers          | room
bathroom -       | Badezimmer N Badezimmer Badezimmers | room
office -         | Büro N Büros Büros               | room
garden -         | Garten M Gärten Gartens          | building
house -          | Haus N Häuser Hauses             | building
school -         | Schule F Schulen Schule          | building
station -        | Bahnhof M Bahnhöfe Bahnhofs      | building
hospital -       | Krankenhaus N Krankenhäuser Krankenhauses | building
museum -         | Museum N Museen Museums          | building
cinema -         | Kino N Kinos Kinos               | building
supermarket -    | Supermarkt M Supermärkte Supermarkts | building
market -         | Markt M Märkte Marktes           | building
library libraries | Bibliothek F Bibliotheken Bibliothek | building
restaurant -     | Restaurant N Restaurants Restaurants | building
hotel -          | Hotel N Hotels Hotels            | building
park -           | Park M Parks Parks               | building
city cities      | Stadt F Städte Stadt             | building
village -        | Dorf N Dörfer Dorfes             | building
beach beaches    | Strand M Strände Strandes        | building
concert -        | Konzert N Konzerte Konzerts      | event
exam -           | Prüfung F Prüfungen Prüfung      | event
film -           | Film M Filme Films               | event
meeting -        | Besprechung F Besprechungen Besprechung | event
dog -            | Hund M Hunde Hundes              | animal
cat -            | Katze F Katzen Katze             | animal
horse -          | Pferd N Pferde Pferdes           | animal
question -       | Frage F Fragen Frage             | topic
rule -           | Regel F Regeln Regel             | topic
problem -        | Problem N Probleme Problems      | topic
exercise -       | Übung F Übungen Übung            | topic
present -        | Geschenk N Geschenke Geschenks   |
song -           | Lied N Lieder Liedes             |
"""


def noun(english: str) -> Noun:
    """Returns the noun with this English singular."""
    return NOUNS[english]


@cache
def nouns_of(*kinds: Kind) -> tuple[Noun, ...]:
    """Returns the nouns of any of these kinds, in the lexicon's order."""
    return tuple(noun for noun in NOUNS.values() if any(kind in noun.kinds for kind in kinds))


def _parse(line: str) -> Noun:
    names, forms, kinds = (part.split() for part in line.split("|"))
    singular, plural = names
    german, gender, german_plural, genitive = forms
    weak = genitive == "~"
    return Noun(
        english=singular,
        english_plural={"-": singular + "s", "0": "", "1": ""}.get(plural, plural),
        german=german,
        gender=Gender[gender],
        plural="" if german_plural in "01" else german_plural,
        kinds=tuple(Kind[kind.upper()] for kind in kinds),
        genitive=german_plural if weak else genitive,
        weak=weak,
        mass=plural == "0",
    )


NOUNS = {parsed.english: parsed for parsed in map(_parse, _TABLE.strip().splitlines())}
