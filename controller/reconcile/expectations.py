"""Whether the caches can be trusted for a job: they hold every write of this process, unless the answer to one was lost.

Own writes are put into the store from their answers, and older news is ignored there, so a pass never misses its own children. What
remains are writes whose outcome nobody knows (time-out, broken connection): the next pass of that job asks the server first.

Source: the idea of expectations is client-go's; the resourceVersion fence follows KEP-5647.
"""


class Expectations:
    """Which jobs, by UID, have a write of unknown outcome."""

    def __init__(self) -> None:
        self._uncertain: set[str] = set()

    def lost_answer(self, uid: str) -> None:
        """A write for that job may or may not have been done."""
        self._uncertain.add(uid)

    def asked_server(self, uid: str) -> None:
        """The caches hold again what the server has."""
        self._uncertain.discard(uid)

    def are_met(self, uid: str) -> bool:
        return uid not in self._uncertain
