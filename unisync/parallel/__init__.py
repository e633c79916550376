"""The data-parallel trainer."""

from unisync.parallel.history import History as History, StepResult as StepResult
from unisync.parallel.making import parallelize as parallelize
from unisync.parallel.saving import load as load
from unisync.parallel.trainer import Trainer as Trainer
