"""``rallypoint run FILE...``: run jobs in a local cluster in this process and exit with their result."""

import argparse
import asyncio
import contextlib
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

import orjson
import structlog
from rich.console import Console

from api.messages import escape_control
from api.meta import Resource
from api.nodes import NODES
from controller import app, command
from controller.runtime import clock
from controller.telemetry import logs
from rallypoint.cli import local_flags, summary
from rallypoint.cli.blockers import BINDINGS, NEEDED_KINDS, blockers, has_rights, missing_objects
from rallypoint.cli.terminal import OutputError, discard_output, output_errors, write_error
from rallypoint.local import documents
from rallypoint.local.apiserver.apimachinery import names
from rallypoint.local.cluster import LocalCluster, ServerConfig
from rallypoint.local.documents import Document, Problem, Refused
from rallypoint.local.follow import Follow
from rallypoint.local.manifest import Manifest
from rallypoint.local.progress import Job, Progress, Replica
from rallypoint.local.screen import Screen, TerminalScreen, TextScreen

log = structlog.get_logger()

EXIT = {"Succeeded": 0, "Failed": 1, "Refused": 2, "Timeout": 124, "Interrupted": 130, "BrokenPipe": 141}
"""BrokenPipe: the reader of the output closed it before the jobs ended."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?\Z")


def add_parser(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]",  # pyright: ignore[reportPrivateUsage]
) -> None:
    parser = subparsers.add_parser(
        "run",
        help="run jobs on this machine, without a cluster",
        description="Run the jobs of manifest files on this machine with the real controller, and show their progress. "
        "Commands run in the current working directory: relative paths in manifests start there, wherever the manifests are.",
        epilog="Exit status: 0 all jobs succeeded, 1 a job failed, 2 a manifest is invalid or its job can never run here, "
        "124 timeout, 130 interrupted, 141 the reader closed the output.",
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a manifest with one or more documents; - is standard input"
    )
    parser.add_argument(
        "--namespace",
        "-n",
        type=namespace,
        default="default",
        help="namespace of documents without one; default: default",
    )
    parser.add_argument(
        "--timeout", type=seconds, metavar="TIME", help="stop after this time: 90, 15m, 1h30m"
    )
    parser.add_argument(
        "--output",
        "-o",
        choices=("text", "json"),
        default="text",
        help="json: print one document on stdout at the end",
    )
    parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="folder for logs; default: a new folder in .rallypoint/runs",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="also run jobs that cannot run on this machine as they are, such as suspended ones, and wait; by default they are refused",
    )
    local_flags.add_flags(parser)
    parser.set_defaults(execute=execute)


def seconds(text: str) -> float:
    """Parse a duration such as ``1h30m`` into seconds."""
    match = _DURATION.match(text)
    if match is None or not text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90, 90s, 15m or 1h30m")
    hours, minutes, rest = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + rest


def namespace(text: str) -> str:
    """Return the name of a namespace; raise argparse.ArgumentTypeError if it is not valid."""
    if error := names.label(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a namespace: {error}")
    return text


def execute(args: argparse.Namespace) -> int:
    """Return one of ``EXIT``; Failed also if the run cannot start."""
    with contextlib.ExitStack() as stack:
        try:
            folder = local_flags.run_folder(args.run_dir)
            log_file = stack.enter_context(local_flags.controller_log(folder, "w"))
        except OSError as error:
            write_error(f"rallypoint run: cannot create the log folder: {error.filename}: {error.strerror}\n")
            return EXIT["Failed"]
        run = Run(args, folder)
        try:
            found = documents.read(args.files, args.namespace)
            logs.configure("console", "info", log_file)
            command.log_start(local_flags.settings_of(args))
            with asyncio.Runner(loop_factory=local_flags.loop_factory()) as runner:
                outcome = runner.run(run.execute(found, log_file))
        except Refused as refused:
            outcome = run.refused(refused.problems)
        except local_flags.START_ERRORS as error:
            outcome = run.failed(str(error))
        except (OSError, ExceptionGroup) as error:
            cause = local_flags.os_error_of(error)
            if cause is None:
                raise
            log.exception("run failed")
            is_output = isinstance(cause, OutputError)
            outcome = run.failed(str(cause) if is_output else local_flags.describe_os_error(cause, folder))
    try:
        run.report(outcome)
    except OutputError as error:
        write_error(f"rallypoint run: {error}\n")
        return EXIT["Failed"]
    return EXIT[outcome]


class Run:
    """One run of the command, from parsed documents to an outcome: a key of ``EXIT``."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args = args
        self._namespace: str = args.namespace
        self._timeout: float | None = args.timeout
        self._json: bool = args.output == "json"
        self._folder = folder
        self._progress = Progress(several=False)
        self._problems: Sequence[Problem] = ()
        self._logs = folder / "logs"
        self._stop = asyncio.Event()
        self._broken_pipe = False
        self._blockers: Sequence[Problem] = ()
        """Why jobs cannot run here as they are, with ``--wait``."""

    async def execute(self, found: Sequence[Document], log_file: TextIO) -> str:
        """Run the jobs and return the outcome. All processes have ended when this returns."""
        command.handle_debug_signals(log_file)
        async with local_flags.open_cluster(self._args, self._folder, ServerConfig()) as local:
            local_flags.stop_on_signal(local, self._stop)
            try:
                matched = await documents.match(local.client, found)
                _require_jobs(matched, self._args.files)
                await documents.check(local.client, matched, self._namespace)
                self._blockers = await self._find_blockers(local, matched)
                if self._blockers and not self._args.wait:
                    raise Refused(self._blockers)
                return await self._follow(local, matched)
            except Refused as refused:
                return self.refused(refused.problems)

    async def _follow(self, local: LocalCluster, matched: Sequence[tuple[Document, Resource]]) -> str:
        jobs = [resource for _, resource in matched if _is_job(resource)]
        self._progress = Progress(several=len(jobs) > 1, waits=self._args.wait)
        with self._screen(self._progress) as shown:
            shown.note(local_flags.banner(local))
            for problem in self._blockers:
                shown.note(str(problem))
            follow = Follow(self._progress, shown, self._stop)
            follow.listen(local.node.logs)
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(app.run(local_flags.settings_of(self._args), local.connection)),
                    tasks.create_task(follow.watch(local.client, jobs)),
                ]
                try:
                    await self._submit(local, matched, follow)
                    async with asyncio.timeout(self._timeout):
                        await follow.until_finished()
                except Refused as refused:
                    return self.refused(refused.problems)
                except TimeoutError:
                    return self._outcome("Timeout")
                finally:
                    for task in background:
                        task.cancel()
        return self._outcome("BrokenPipe" if self._broken_pipe else "Interrupted")

    async def _find_blockers(
        self, local: LocalCluster, matched: Sequence[tuple[Document, Resource]]
    ) -> list[Problem]:
        """Return why jobs can never run here. Pods with rights may create the objects that others need."""
        node = orjson.loads(await local.client.get(NODES, "", local.node.name))
        listed = [document for document, _ in matched]
        bindings = [document for document in listed if document.kind in BINDINGS]
        found: list[Problem] = []
        for job, resource in matched:
            if not _is_job(resource):
                continue
            problems = [*blockers(job.manifest, node, self._args.gang_scheduler_name)]
            namespace = job.namespace(self._namespace)
            if not any(
                has_rights(job.manifest, namespace, binding.manifest, binding.namespace(self._namespace))
                for binding in bindings
            ):
                existing = {
                    (document.kind, document.name): _keys(document.manifest)
                    for document in listed
                    if document.kind in NEEDED_KINDS and document.namespace(self._namespace) == namespace
                }
                problems += missing_objects(job.manifest, existing)
            fields: dict[str, list[str]] = {}
            for field, reason in problems:
                fields.setdefault(reason, []).append(field)
            found += [job.problem(reason, ", ".join(same)) for reason, same in fields.items()]
        return found

    async def _submit(
        self, local: LocalCluster, matched: Sequence[tuple[Document, Resource]], follow: Follow
    ) -> None:
        """Create the other objects first, then the jobs."""
        for document, resource in sorted(matched, key=lambda pair: _is_job(pair[1])):
            created = await documents.create(local.client, document, resource, self._namespace)
            if _is_job(resource):
                follow.submitted(resource.kind, created)

    def _outcome(self, unfinished: str) -> str:
        if not self._progress.finished:
            return unfinished
        return "Succeeded" if self._progress.succeeded else "Failed"

    def _write(self, text: str, stream: TextIO | None = None) -> None:
        """Write and flush to ``stream``, by default stdout. If the reader has closed it, stop the run."""
        chosen = sys.stdout if stream is None else stream
        try:
            with output_errors():
                chosen.write(text)
                chosen.flush()
        except BrokenPipeError:
            discard_output(chosen)
            self._broken_pipe = True
            self._stop.set()
        except OutputError:
            discard_output(chosen)
            raise

    def refused(self, problems: Sequence[Problem]) -> str:
        self._problems = problems
        return "Refused"

    def failed(self, why: str) -> str:
        """Record why the run could not start, or could not continue."""
        self._problems = [Problem("rallypoint run", "", "", why)]
        return "Failed"

    def report(self, outcome: str) -> None:
        """Print the outcome: problems on stderr, the summary or the JSON document on stdout."""
        if self._json:
            document = {
                "outcome": outcome,
                "exitStatus": EXIT[outcome],
                "directory": str(self._folder),
                "jobs": summary.document(self._progress, outcome, self._logs_of),
                "problems": [
                    {
                        "source": problem.source,
                        "about": problem.about,
                        "field": problem.field,
                        "message": problem.message,
                    }
                    for problem in self._problems or self._blockers
                ],
            }
            self._write(escape_control(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()) + "\n")
            return
        if self._problems:
            self._write(escape_control("".join(f"{problem}\n" for problem in self._problems)), sys.stderr)
        if outcome != "Refused" and (self._progress.jobs or not self._problems):
            paths = {
                "logs": _display_path(self._logs),
                "controller log": _display_path(self._folder / "controller.log"),
            }
            text = summary.text(self._progress, outcome, paths, self._logs_of, _display_path)
            self._write(escape_control(text))

    def _screen(self, progress: Progress) -> Screen:
        if self._json:
            return TextScreen(partial(self._write, stream=sys.stderr))
        console = Console(highlight=False, soft_wrap=True)
        return (
            TerminalScreen(console, progress, clock.now) if console.is_terminal else TextScreen(self._write)
        )

    def _logs_of(self, job: Job, replica: Replica, uid: str) -> Path:
        return self._logs / f"{job.namespace}_{replica.name}_{uid}"


def _display_path(path: Path) -> str:
    """Return the path relative to the working directory if it is below it. The jobs may have deleted the directory."""
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        return str(path)
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _keys(manifest: Manifest) -> set[str]:
    """Return the keys of a ConfigMap or Secret."""
    return {key for part in ("data", "binaryData", "stringData") for key in manifest.get(part) or ()}


def _is_job(resource: Resource) -> bool:
    return resource.group == "kubeflow.org"


def _require_jobs(matched: Sequence[tuple[Document, Resource]], files: Sequence[str]) -> None:
    """Raises:
    Refused: no document is a job.
    """
    if not any(_is_job(resource) for _, resource in matched):
        raise Refused([Problem(", ".join(map(documents.name_of, files)), "", "", "no document is a job")])
