"""A stop asked for by signal, noticed where the supervisor waits and nowhere else."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopRequested(Exception):
    """Somebody asked for the end by SIGINT, SIGTERM or SIGHUP."""


@contextmanager
def stop_signals() -> Iterator[Callable[[float], None]]:
    """Yields a `sleep` that raises StopRequested once a signal has come.

    The handlers are explicit because a background job of a non-interactive shell starts with SIGINT ignored.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    received: list[int] = []

    def pause(seconds: float) -> None:
        if not received:
            select.select([reader], [], [], seconds)
        if received:
            raise StopRequested(signal.Signals(received[0]).name)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: stay when the terminal goes
        numbers.append(signal.SIGHUP)
    earlier = {number: signal.signal(number, lambda got, _frame: received.append(got)) for number in numbers}
    earlier_descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield pause
    finally:
        signal.set_wakeup_fd(earlier_descriptor)
        for number, handler in earlier.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
