"""Every worker sends its rank to the master over TCP; the master waits for all of them."""

import os
import socket
import time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("", address[1])) as server:
        for _ in range(world - 1):
            guest, _ = server.accept()
            print("hello, rank", guest.recv(8).decode(), flush=True)
else:
    while True:
        try:
            socket.create_connection(address).sendall(str(rank).encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
