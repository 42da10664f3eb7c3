"""Exchange with other programs: exports, imports and engines, each compared with the model of nmt."""

from nmt.interop.argos_export import ArgosExporter
from nmt.interop.ctranslate2_export import CTranslate2Exporter
from nmt.interop.engines import CTranslate2Engine, PyTorchEngine
from nmt.interop.interfaces import ENGINES as ENGINES
from nmt.interop.interfaces import EXPORTERS as EXPORTERS
from nmt.interop.interfaces import IMPORTERS as IMPORTERS
from nmt.interop.interfaces import Engine as Engine
from nmt.interop.interfaces import Exporter as Exporter
from nmt.interop.interfaces import ForeignModel as ForeignModel
from nmt.interop.interfaces import Imported as Imported
from nmt.interop.interfaces import Importer as Importer
from nmt.interop.interfaces import LoadedModel as LoadedModel
from nmt.interop.marian_export import MarianExporter
from nmt.interop.marian_import import MarianImporter

EXPORTERS["ctranslate2"] = CTranslate2Exporter
EXPORTERS["argos"] = ArgosExporter
EXPORTERS["marian"] = MarianExporter
IMPORTERS["marian"] = MarianImporter
ENGINES["nmt"] = PyTorchEngine
ENGINES["ctranslate2"] = CTranslate2Engine
