"""Every option as a typed dataclass: its meaning, unit, default and check."""

from nmt.config.commands import (
    CometConfig,
    EvalConfig,
    EvaluationConfig,
    Resume,
    TrainConfig,
    TranslateConfig,
    folders,
)
from nmt.config.data import (
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    HubConfig,
    Normalization,
    PairsConfig,
    SamplingConfig,
    Segmentation,
    SplitConfig,
    TokenizerConfig,
    TrainSplitConfig,
)
from nmt.config.decoding import DecodingConfig, Shift
from nmt.config.interop import ExportConfig, ImportConfig
from nmt.config.model import Activation, ModelConfig, Norm, PositionsConfig, Tie
from nmt.config.serving import LimitsConfig, ServeConfig
from nmt.config.storage import typed_options
from nmt.config.training import (
    Average,
    AveragingConfig,
    Exchange,
    ObjectiveConfig,
    OptimizerConfig,
    Precision,
    ScheduleConfig,
    Sharding,
    TrainingConfig,
)

__all__ = [
    "Activation",
    "Average",
    "AveragingConfig",
    "CleaningConfig",
    "CometConfig",
    "CorpusConfig",
    "DataConfig",
    "DecodingConfig",
    "EvalConfig",
    "EvaluationConfig",
    "Exchange",
    "ExportConfig",
    "HubConfig",
    "ImportConfig",
    "LimitsConfig",
    "ModelConfig",
    "Norm",
    "Normalization",
    "ObjectiveConfig",
    "OptimizerConfig",
    "PairsConfig",
    "PositionsConfig",
    "Precision",
    "Resume",
    "SamplingConfig",
    "ScheduleConfig",
    "Segmentation",
    "ServeConfig",
    "Sharding",
    "Shift",
    "SplitConfig",
    "Tie",
    "TokenizerConfig",
    "TrainConfig",
    "TrainSplitConfig",
    "TrainingConfig",
    "TranslateConfig",
    "folders",
    "typed_options",
]
