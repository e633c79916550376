"""What the ranks print: lines to this process's own output, behind "[rank] ", and all of it to a file for each rank."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import selectors
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, final

from unisync.distributed.launch.processes import Child

LONGEST_LINE = 1 << 16
TAIL = 1 << 16
_CHUNK = 1 << 16
_REPORT_LINES = 40
_ENGINE_LOG = re.compile(r"[IWEF]\d{4} |\*\*\* ")
"""How a line begins that an engine written in C++ logs, such as the stack of where it ended the process."""
_CHAINED = ("direct cause of the following exception:", "another exception occurred:")


@final
class Output:
    """Passes on what children print, in a thread, until `finish`.

    Lines of up to 64 KiB come out whole, each in one piece with its prefix; a longer one is broken. Bytes are passed on
    as they are, whatever their encoding.

    Args:
        out: where their standard output goes: a text stream, which need not have a file underneath.
        err: where their standard error goes.
        log_dir: where each rank's output goes as well, as rank-0.log, ...; None for nowhere.
        colour: whether the prefixes are coloured: "out", "err" or both.
        closed: called once if nobody reads `out` or `err` any more.
    """

    def __init__(
        self,
        out: Any,
        err: Any,
        log_dir: Path | None = None,
        colour: Sequence[str] = (),
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._streams = {"out": out, "err": err}
        self._log_dir, self._colour, self._closed = log_dir, colour, closed
        self._selector = selectors.DefaultSelector()
        self._logs: dict[int, IO[bytes]] = {}
        self._tails: dict[int, bytearray] = {}
        self._finishing = False
        self._thread = threading.Thread(target=self._run, name="unisync-output", daemon=True)

    def add(self, child: Child) -> None:
        """Pass on what a child prints; before `start`."""
        for name, pipe in (("out", child.process.stdout), ("err", child.process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, _Lines(child.rank, name))
        self._tails[child.rank] = bytearray()
        if self._log_dir is not None:
            self._log_dir.mkdir(parents=True, exist_ok=True)
            self._logs[child.rank] = (self._log_dir / f"rank-{child.rank}.log").open("wb", buffering=0)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def last_words(self, rank: int) -> str:
        """The last traceback, or report of unisync's, that a rank printed to its standard error; without one its last
        lines."""
        text = self._tails.get(rank, bytearray()).decode(errors="replace").rstrip()
        start = text.rfind("Traceback (most recent call last):")
        report = f"\n{text}".rfind("\nunisync: ")
        if report > start:
            lines = itertools.takewhile(lambda line: not _ENGINE_LOG.match(line), text[report:].splitlines())
            return "\n".join(itertools.islice(lines, _REPORT_LINES))
        if start < 0:
            return "\n".join(text.splitlines()[-10:])
        while text[:start].rstrip().endswith(_CHAINED):
            earlier = text.rfind("Traceback (most recent call last):", 0, start)
            if earlier < 0:
                break
            start = earlier
        return text[start:]

    def finish(self) -> None:
        """Pass on what is left, once the children have ended, and close the files."""
        self._finishing = True
        if self._thread.ident is not None:
            self._thread.join()
        for key in list(self._selector.get_map().values()):
            self._drop(key)
        self._selector.close()
        for file in self._logs.values():
            file.close()

    def _run(self) -> None:
        while self._selector.get_map():
            ready = self._selector.select(timeout=0.1)
            if not ready and self._finishing:
                break  # a process that got away may hold a pipe open for good
            for key, _ in ready:
                with contextlib.suppress(BlockingIOError):
                    data = os.read(key.fd, _CHUNK)
                    if data:
                        self._pass_on(key.data, data)
                    else:
                        self._drop(key)

    def _drop(self, key: selectors.SelectorKey) -> None:
        self._write(key.data, key.data.end())
        self._selector.unregister(key.fileobj)
        key.fileobj.close()  # pyright: ignore[reportAttributeAccessIssue] -- a file, not a number

    def _pass_on(self, lines: _Lines, data: bytes) -> None:
        if lines.rank in self._logs:
            self._logs[lines.rank].write(data)
        if lines.name == "err":
            tail = self._tails[lines.rank]
            tail += data
            del tail[:-TAIL]
        self._write(lines, lines.feed(data))

    def _write(self, lines: _Lines, text: bytes) -> None:
        stream = self._streams[lines.name]
        if stream is None or not text:
            return
        data = lines.prefixed(text, lines.name in self._colour)
        try:
            if hasattr(stream, "buffer"):
                stream.buffer.write(data)
            else:  # a notebook's
                stream.write(data.decode(errors="replace"))
            stream.flush()
        except (BrokenPipeError, ValueError):  # nobody reads it any more, or it was closed
            self._streams[lines.name] = None
            self._closed()


@final
class _Lines:
    """Cuts what comes in pieces from one rank into whole lines, and marks them."""

    def __init__(self, rank: int, name: str) -> None:
        self.rank, self.name = rank, name
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The lines that are complete with these bytes, each with its end."""
        data = self._rest + data
        cut = data.rfind(b"\n") + 1
        if len(data) - cut >= LONGEST_LINE:
            self._rest = b""
            return data + b"\n"
        self._rest = data[cut:]
        return data[:cut]

    def end(self) -> bytes:
        """The last line, if it had no end."""
        rest, self._rest = self._rest, b""
        return rest + b"\n" if rest else b""

    def prefixed(self, text: bytes, colour: bool) -> bytes:
        """Lines, each with the rank before it."""
        name = f"[{self.rank}]"
        prefix = (f"\x1b[3{1 + self.rank % 6}m{name}\x1b[0m " if colour else f"{name} ").encode()
        return prefix + text[:-1].replace(b"\n", b"\n" + prefix) + b"\n"
