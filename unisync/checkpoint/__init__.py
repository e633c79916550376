"""Saved training state: trees of arrays and numbers in a folder, as safetensors and JSON. No pickles."""

from unisync.checkpoint.folder import Saved as Saved, check_target as check_target, read as read, write as write
from unisync.checkpoint.matching import fit as fit
