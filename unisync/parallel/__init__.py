"""The data-parallel trainer, so far of one replica."""

from unisync.parallel.history import History as History, StepResult as StepResult
from unisync.parallel.saving import load as load
from unisync.parallel.trainer import Trainer as Trainer, parallelize as parallelize
