"""A TCP connection to another cluster that can be cut and restored."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

CHUNK_BYTES = 65_536


class Link:
    """Forwards connections from a port of loopback to another one. While it is cut, it accepts none, and those that existed are closed."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.restore()
        assert self._listener is not None
        self.address: tuple[str, int] = self._listener.getsockname()

    def restore(self) -> None:
        """Accept connections."""
        listener = socket.create_server(getattr(self, "address", ("127.0.0.1", 0)))
        with self._lock:
            self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        with self._lock:
            closing = [*self._open, *([self._listener] if self._listener else [])]
            self._listener = None
        for end in closing:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                is_cut = self._listener is not listener
                if not is_cut:
                    self._open |= {near, far}
            if is_cut:
                near.close()
                far.close()
                return
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        """Copy bytes both ways until one side ends."""
        with contextlib.suppress(OSError, ValueError), selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while all(self._copy(key) for key, _ in selector.select()):
                pass
        with self._lock:
            self._open -= {near, far}
        near.close()
        far.close()

    @staticmethod
    def _copy(key: selectors.SelectorKey) -> bool:
        source = key.fileobj
        assert isinstance(source, socket.socket)
        read = source.recv(CHUNK_BYTES)
        key.data.sendall(read)
        return bool(read)


@contextmanager
def link_to(host: str, port: int) -> Generator[Link]:
    """Yield a link to this address, and cut it at the end."""
    link = Link((host, port))
    try:
        yield link
    finally:
        link.cut()
