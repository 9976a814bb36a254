"""The order of a group's collectives: one at a time, first come, first served."""

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from types import TracebackType
from typing import Any

from .. import errors
from ..core.origin import origin, written_at


class Job:
    """A collective that runs in the background."""

    def __init__(self, channel: "Channel", action: Callable[[], Any]):
        self._channel, self._action, self._place = channel, action, origin()
        self._result: Any = None
        self._error: BaseException | None = None
        self.ended = False

    def done(self) -> bool:
        return self.ended

    def wait(self) -> Any:
        """The result; raises what the collective raised."""
        with self._channel.changed:
            while not self.ended:
                self._channel.changed.wait()
        if self._error is not None:
            raise self._error
        return self._result

    def perform(self) -> None:
        try:
            with written_at(self._place):
                self._result = self._channel.run(self._action)
        except BaseException as e:  # raised where it is waited for
            self._error = e
        del self._action


class Channel:
    """Runs the collectives of a group in the order in which they were started or called.

    After one that fails the ranks are no longer in step, so all later ones raise the same error.

    failed  called with the error of the first collective that fails
    """

    def __init__(self, name: str, failed: Callable[[BaseException], Any]):
        self._name, self._failed = name, failed
        self.changed = Condition()
        self._waiting: deque[Job] = deque()
        self._busy = False  # a collective is running, here or in the thread
        self._thread: Thread | None = None
        self._closed = False
        self.failure: Exception | None = None
        self._traceback: TracebackType | None = None  # of the failure

    def call(self, action: Callable[[], Any]) -> Any:
        """Run a collective after those that were started; here, where none are left."""
        with self.changed:
            idle = not (self._busy or self._waiting)
            self._busy = self._busy or idle
        if not idle:
            return self.start(action).wait()
        try:
            return self.run(action)
        finally:
            with self.changed:
                self._busy = False
                self.changed.notify_all()

    def run(self, action: Callable[[], Any]) -> Any:
        """Run an action now; after one that has failed, none runs."""
        if self.failure is not None:
            raise self.failure.with_traceback(self._traceback)  # which does not grow by each call
        try:
            return action()
        except Exception as e:
            self.fail(e)
            raise
        except BaseException as e:  # an interrupt: the others are in a collective that this left
            self.fail(
                errors.DistributedError(
                    f"a collective was left by {type(e).__name__}, so the ranks are no longer in "
                    "step: call wf.dist.finalize() and, on all ranks, wf.dist.init() again"
                )
            )
            raise

    def fail(self, error: Exception) -> None:
        """Let all later collectives raise an error."""
        if self.failure is None:
            self.failure, self._traceback = error, error.__traceback__
            self._failed(error)

    def start(self, action: Callable[[], Any]) -> Job:
        """Run a collective in the background."""
        job = Job(self, action)
        with self.changed:
            if self._thread is None:
                self._thread = Thread(target=self._serve, name=f"weft-{self._name}", daemon=True)
                self._thread.start()
            self._waiting.append(job)
            self.changed.notify_all()
        return job

    def _serve(self) -> None:
        while True:
            with self.changed:
                while not self._closed and (self._busy or not self._waiting):
                    self.changed.wait()
                if self._closed and not self._waiting:
                    return
                job = self._waiting.popleft()
                self._busy = True
            job.perform()
            with self.changed:
                job.ended, self._busy = True, False
                self.changed.notify_all()
            del job  # and what it holds, until the next one comes

    def finish(self) -> None:
        """Finish what was started, and end the thread."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()
        self.join()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the thread to end, for some seconds at most."""
        if self._thread is not None:
            self._thread.join(seconds)

    def abandon(self, error: BaseException | None) -> None:
        """Let what was started, and is not done, never be done.

        error  why; None: this fails only if something is under way
        """
        with self.changed:
            self._closed = True
            idle = not (self._busy or self._waiting)
            self.changed.notify_all()
        if error is not None or not idle:
            left = errors.DistributedError("this process ended while collectives were under way")
            self.fail(error if isinstance(error, Exception) else left)
