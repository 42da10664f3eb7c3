"""Every option as a typed dataclass: its meaning, unit, default and check."""

from nmt.config.commands import RECIPE_KEYS as RECIPE_KEYS
from nmt.config.commands import CometConfig as CometConfig
from nmt.config.commands import EvalConfig as EvalConfig
from nmt.config.commands import EvaluationConfig as EvaluationConfig
from nmt.config.commands import Recipe as Recipe
from nmt.config.commands import Resume as Resume
from nmt.config.commands import Significance as Significance
from nmt.config.commands import TrainConfig as TrainConfig
from nmt.config.commands import TranslateConfig as TranslateConfig
from nmt.config.commands import folders as folders
from nmt.config.data import AugmentationConfig as AugmentationConfig
from nmt.config.data import CleaningConfig as CleaningConfig
from nmt.config.data import CorpusConfig as CorpusConfig
from nmt.config.data import DataConfig as DataConfig
from nmt.config.data import Extension as Extension
from nmt.config.data import HubConfig as HubConfig
from nmt.config.data import Markup as Markup
from nmt.config.data import NamedConfig as NamedConfig
from nmt.config.data import Normalization as Normalization
from nmt.config.data import PairsConfig as PairsConfig
from nmt.config.data import SamplingConfig as SamplingConfig
from nmt.config.data import Segmentation as Segmentation
from nmt.config.data import SetConfig as SetConfig
from nmt.config.data import SplitConfig as SplitConfig
from nmt.config.data import TaggedConfig as TaggedConfig
from nmt.config.data import TokenizerConfig as TokenizerConfig
from nmt.config.data import TrainSplitConfig as TrainSplitConfig
from nmt.config.decoding import Casing as Casing
from nmt.config.decoding import DecodingConfig as DecodingConfig
from nmt.config.decoding import Numbers as Numbers
from nmt.config.decoding import Shift as Shift
from nmt.config.interop import ExportConfig as ExportConfig
from nmt.config.interop import ImportConfig as ImportConfig
from nmt.config.model import Activation as Activation
from nmt.config.model import ModelConfig as ModelConfig
from nmt.config.model import Norm as Norm
from nmt.config.model import NormKind as NormKind
from nmt.config.model import PositionsConfig as PositionsConfig
from nmt.config.model import Tie as Tie
from nmt.config.serving import LimitsConfig as LimitsConfig
from nmt.config.serving import ServeConfig as ServeConfig
from nmt.config.storage import typed_options as typed_options
from nmt.config.synthetic import DistillationConfig as DistillationConfig
from nmt.config.synthetic import MonolingualConfig as MonolingualConfig
from nmt.config.synthetic import SyntheticConfig as SyntheticConfig
from nmt.config.training import Average as Average
from nmt.config.training import AveragingConfig as AveragingConfig
from nmt.config.training import Exchange as Exchange
from nmt.config.training import Kernel as Kernel
from nmt.config.training import ObjectiveConfig as ObjectiveConfig
from nmt.config.training import OptimizerConfig as OptimizerConfig
from nmt.config.training import Precision as Precision
from nmt.config.training import ScheduleConfig as ScheduleConfig
from nmt.config.training import Sharding as Sharding
from nmt.config.training import TrainingConfig as TrainingConfig

SCHEMAS = {
    "nmt-train": TrainConfig,
    "nmt-translate": TranslateConfig,
    "nmt-eval": EvalConfig,
    "nmt-export": ExportConfig,
    "nmt-import": ImportConfig,
    "nmt-serve": ServeConfig,
}
"""The options of each command."""
