"""The world: how many replicas there are, where they run, and how a function is run once per replica."""

from unisync.distributed.spmd import spmd as spmd
from unisync.distributed.world import (
    World as World,
    init_distributed as init_distributed,
    is_launched as is_launched,
)
