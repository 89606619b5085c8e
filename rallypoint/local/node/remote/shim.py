"""``ssh`` and ``kubectl`` as pods have them: their streams and their words go to the node, and its answer comes back.

Started once for each rank's host by every ``mpirun``, so it has no imports that cost anything and no opinion: who is
meant and what is to be run, the node reads from the words (``command``). It needs nothing but Python 3.6.
"""

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

SOCKET = "socket"
PIECE_BYTES = 65536
LENGTH_BYTES = 4
"""Of the length that goes before the words."""


def main(folder: str, *words: str) -> int:
    """``words``: the pod's uid, the tool's name, its arguments. Cut off from the node, ssh's own exit status."""
    body = b"\0".join(os.fsencode(word) for word in words)
    body = len(body).to_bytes(LENGTH_BYTES, "big") + body
    streams = b"".join(_open(number).to_bytes(4, sys.byteorder) for number in range(3))
    node = socket(AF_UNIX, SOCK_STREAM)
    answer = b""
    try:
        os.chdir(folder)  # A socket's path may have a hundred bytes, and this folder's more.
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
    code, _, said = (answer or b"255\nthe node of this pod is gone\n").partition(b"\n")
    os.write(2, said)
    return int(code)


def _open(number: int) -> int:
    """A stream that is closed is as good as empty."""
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
