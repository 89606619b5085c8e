"""The connection between two clusters that tests cut."""

import socket
from collections.abc import Generator

import pytest

from tests.support.schedulers.link import Link, link_to


@pytest.fixture
def server() -> Generator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener


@pytest.fixture
def link(server: socket.socket) -> Generator[Link]:
    with link_to(*server.getsockname()) as link:
        yield link


def connect(link: Link, server: socket.socket) -> tuple[socket.socket, socket.socket]:
    near = socket.create_connection(link.address, timeout=10)
    far, _ = server.accept()
    far.settimeout(10)
    return near, far


def test_bytes_pass_both_ways(link: Link, server: socket.socket) -> None:
    near, far = connect(link, server)
    with near, far:
        near.sendall(b"ping")
        assert far.recv(10) == b"ping"
        far.sendall(b"pong")
        assert near.recv(10) == b"pong"


def test_an_end_passes(link: Link, server: socket.socket) -> None:
    near, far = connect(link, server)
    with near, far:
        near.close()
        assert far.recv(10) == b""


def test_a_cut_link_closes_connections_and_refuses_new_ones_until_it_is_restored(
    link: Link, server: socket.socket
) -> None:
    near, far = connect(link, server)
    with near, far:
        link.cut()
        assert near.recv(10) == b""
        assert far.recv(10) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(link.address, timeout=10)

    link.restore()

    near, far = connect(link, server)
    with near, far:
        near.sendall(b"ping")
        assert far.recv(10) == b"ping"
