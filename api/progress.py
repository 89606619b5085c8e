"""How the operator sees that a job makes progress. Without progress for ``runPolicy.progressDeadlineSeconds``, the job hangs. All fields are opt-in."""

from api.meta import Wire


class LogProgress(Wire):
    """Lines in the logs of the pods."""

    pattern: str | None = None
    """RE2 expression. Only lines that contain a match count; all if unset."""
    container: str | None = None
    """Container whose log is read. Defaults to the main container."""


class ExecProgress(Wire):
    """A command in the pods. Progress is an exit code of 0 with another output than before, or with none. Needs the component ``progress-exec``."""

    command: list[str]
    """The command and its arguments. It has 10 s."""
    container: str | None = None
    """Container in which it runs. Defaults to the main container."""


class Progress(Wire):
    """What counts as progress: at most one of ``logs``, ``annotation`` and ``exec``; lines in the logs if none is set."""

    logs: LogProgress | None = None
    """Lines in the logs. Needs the component ``progress``."""
    annotation: str | None = None
    """Annotation of the pods. Each new value is progress."""
    exec: ExecProgress | None = None
    """A command in the pods."""
    roles: list[str] | None = None
    """Replica types whose pods count, such as ``Worker``; all if unset. Not case-sensitive."""
    every_pod: bool | None = None
    """Whether each pod must make progress. By default the progress of one is enough."""
    stack_signal: str | None = None
    """``SIGUSR1`` or ``SIGUSR2``: the signal at which Python's ``faulthandler`` writes the stacks of the program."""
