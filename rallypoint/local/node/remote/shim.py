"""``ssh`` and ``kubectl`` in pods: sends the arguments and the streams to the node and returns its answer.

Every ``mpirun`` starts it once per host, so it imports little. The node parses the arguments (``command_line``). It needs
only Python 3.6.
"""

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

SOCKET = "socket"
PIECE_BYTES = 65536
LENGTH_BYTES = 4
"""The size of the length field before the arguments."""


def main(folder: str, *words: str) -> int:
    """Run one command. ``words``: the pod's UID, the tool's name, its arguments.

    Return ssh's exit status 255 if the node does not answer.
    """
    body = b"\0".join(os.fsencode(word) for word in words)
    body = len(body).to_bytes(LENGTH_BYTES, "big") + body
    streams = b"".join(_open(number).to_bytes(4, sys.byteorder) for number in range(3))
    node = socket(AF_UNIX, SOCK_STREAM)
    answer = b""
    try:
        os.chdir(folder)  # The path of a socket is limited to about 100 bytes.
        node.connect(SOCKET)
        sent = node.sendmsg([body], [(SOL_SOCKET, SCM_RIGHTS, streams)])
        if sent < len(body):
            node.sendall(body[sent:])
        piece = node.recv(PIECE_BYTES)
        while piece:
            answer += piece
            piece = node.recv(PIECE_BYTES)
    except OSError:
        answer = b""
    code, _, message = (answer or b"255\nthe node of this pod has stopped\n").partition(b"\n")
    os.write(2, message)
    return int(code)


def _open(number: int) -> int:
    """Return the descriptor, or one of /dev/null if the stream is closed."""
    try:
        os.fstat(number)
    except OSError:
        return os.open(os.devnull, os.O_RDWR)
    return number


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
