"""What a launcher needs of the job's coordinator, and how it makes one."""

from __future__ import annotations

from typing import Any, Protocol


class Hosted(Protocol):
    """The coordinator as its launcher sees it; `unisync.distributed.coordinator.Coordinator` is one.

    Attributes:
        address: HOST:PORT that the ranks connect to.
        verdict: what went wrong first, with `kind`, `rank` and `text`; None as long as nothing has.
    """

    address: str
    verdict: Any

    def exited(self, rank: int, how: str) -> None:
        """Note that a rank's process has ended: "exit code 3", "killed by SIGKILL", "exit code 0"."""
        ...

    def close(self) -> None:
        """Stop listening, and drop the connections."""
        ...


def host(size: int, token: str, address: str = "127.0.0.1") -> Hosted:
    """A coordinator for a job, which listens on a free port of an address of this machine."""
    from unisync.distributed.coordinator import Coordinator

    return Coordinator(size, token, host=address, port=0)
