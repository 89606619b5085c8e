"""Whether the caches can be trusted for a job: they hold every write of this process, unless the answer to one was lost.

Own writes are put into the store from their answers, and older news is ignored there, so a pass never misses its own children. What
remains are writes whose outcome nobody knows (time-out, broken connection): the next pass of that job asks the server first.

And a job may be gone itself while its watch is down. Its children go with it, each is told of, and each would be made again as fast as
the garbage collector deletes them. So children that are missing once more are made only if the job has been seen since they were made.

Source: the idea of expectations is client-go's; the resourceVersion fence follows KEP-5647.
"""


class Expectations:
    """Which jobs, by UID, have a write of unknown outcome, and at which version each had all its children made."""

    def __init__(self) -> None:
        self._uncertain: set[str] = set()
        self._made_at: dict[str, int] = {}

    def lost_answer(self, uid: str) -> None:
        """A write for that job may or may not have been done."""
        self._uncertain.add(uid)

    def asked_server(self, uid: str) -> None:
        """The caches hold again what the server has."""
        self._uncertain.discard(uid)

    def are_met(self, uid: str) -> bool:
        return uid not in self._uncertain

    def made_all(self, uid: str, resource_version: int) -> None:
        """All children that were missing have been made for that version of the job."""
        self._made_at[uid] = resource_version

    def may_be_gone(self, uid: str, resource_version: int) -> bool:
        """Whether nothing has been heard of the job since its missing children were made."""
        return self._made_at.get(uid) == resource_version

    def forget(self, uid: str) -> None:
        """There is no such job any more."""
        self._uncertain.discard(uid)
        self._made_at.pop(uid, None)
