"""One launch from its first process to its last, as its first (or only) machine sees it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from typing import final

from unisync.distributed.coordinator import Coordinator
from unisync.distributed.launch.events import Events
from unisync.distributed.launch.following import follow
from unisync.distributed.launch.local import LocalRanks
from unisync.distributed.launch.nodes import Hub
from unisync.distributed.launch.output import Output
from unisync.distributed.launch.plan import Job, Plan
from unisync.distributed.launch.seats import Managing
from unisync.distributed.launch.watch import Outcome, Watch, stopped_by
from unisync.errors import UnisyncError


@final
class Supervisor:
    """Starts this machine's part of a job, and stays until its last process has gone.

    Args:
        job: what is to be run.
        make_output: makes the Output, given what it calls when nobody reads it any more.
        folder: a folder that is to go if this process is killed.
    """

    def __init__(
        self, job: Job, make_output: Callable[[Callable[[], None]], Output], folder: str | None = None
    ) -> None:
        self._job, self._make_output, self._folder = job, make_output, folder
        self._events = Events()

    def stop(self, number: int) -> None:
        """End all because of a signal; a second one does not wait. May be called in a signal handler."""
        self._events.stop(number)

    def run(self) -> Outcome:
        """Start the processes, and wait until all have ended.

        Raises:
            ArgumentError: the rendezvous cannot be.
            StateError: the other machines did not come.
            KeyboardInterrupt: Ctrl-C, where it is not turned into `stop`; all processes have ended then too.
        """
        if self._job.node > 0:
            return follow(self._job, self._events, self._make_output)
        hub = Hub(self._job, self._events) if self._job.nodes > 1 else None
        outcome = Outcome(1, "failed", None, "node 0's launcher failed")
        try:
            if hub is not None and not hub.gather():
                outcome = stopped_by(self._events.asked, " on node 0")
            else:
                outcome = self._supervise(hub)
            return outcome
        except UnisyncError as error:
            outcome = Outcome(1, "failed", None, str(error))
            raise
        finally:
            if hub is not None:
                hub.close({"t": "end", "code": outcome.code, "kind": outcome.kind, "text": outcome.text})

    def _supervise(self, hub: Hub | None) -> Outcome:
        with contextlib.ExitStack() as stack:
            sizes = (self._job.replicas,) if hub is None else tuple(hub.sizes)
            addresses = ("127.0.0.1",) if hub is None else tuple(hub.addresses)
            coordinator = Coordinator(
                sum(sizes), secrets.token_hex(16), addresses[0], 0, lambda v: self._events.put("verdict", v)
            )
            stack.callback(coordinator.close)
            coordinator.start()
            host, port = coordinator.address
            plan = Plan(self._job, coordinator.job, secrets.token_hex(8), sizes, f"{host}:{port}", addresses)
            proxies = stack.enter_context(Managing(plan)).proxies
            if hub is not None:
                for node in range(1, len(sizes)):
                    hub.send(node, {"t": "start", "proxy": proxies[node] if proxies else None, **plan.shared()})
            own = proxies[0] if proxies else None
            local = LocalRanks(plan, self._events, self._make_output, own, self._folder)
            watch = Watch(plan, self._events, local, coordinator, hub)
            try:
                watch.wait()
            finally:
                local.end()
            return watch.outcome()
