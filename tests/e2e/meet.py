"""What a training program does first, for every kind and without its framework: finds the others by the environment, over TCP.

Rank 0 waits for all others and tells each the sum of all ranks; everybody prints it. Runs in pods, standard library only.
"""

import json
import os
import socket
import sys
import time

PATIENCE_SECONDS = 90.0


def main() -> int:
    host, port, rank, size = WAYS[os.environ["MEET_AS"]]()
    total = receive(port, size) if rank == 0 else send(host, port, rank)
    print(f"rank {rank} of {size}: {total}", flush=True)
    return 0 if total == size * (size - 1) // 2 else 1


def receive(port: int, size: int) -> int:
    with socket.create_server(("", port)) as server:
        others = [server.accept()[0] for _ in range(size - 1)]
    total = sum(int(one.makefile().readline()) for one in others)
    for one in others:
        one.sendall(f"{total}\n".encode())
        one.close()
    return total


def send(host: str, port: int, rank: int) -> int:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with socket.create_connection((host, port), timeout=PATIENCE_SECONDS) as connection:
                connection.sendall(f"{rank}\n".encode())
                return int(connection.makefile().readline())
        except OSError as error:
            if time.monotonic() > deadline:
                raise
            print(f"{host}:{port}: {error}", flush=True)
            time.sleep(0.5)


def master() -> tuple[str, int, int, int]:
    """PyTorch and XGBoost."""
    told = os.environ
    return told["MASTER_ADDR"], int(told["MASTER_PORT"]), int(told["RANK"]), int(told["WORLD_SIZE"])


def tf_config() -> tuple[str, int, int, int]:
    """TensorFlow: everybody's address is in one list a role; ranks are places in all of them."""
    told = json.loads(os.environ["TF_CONFIG"])
    everybody = [
        (role, index) for role in sorted(told["cluster"]) for index in range(len(told["cluster"][role]))
    ]
    role, index = everybody[0]
    host, _, port = told["cluster"][role][index].rpartition(":")
    return host, int(port), everybody.index((told["task"]["type"], told["task"]["index"])), len(everybody)


def paddle() -> tuple[str, int, int, int]:
    """Paddle: the launcher finds out who is first by whose address it is; here, by the pod's name."""
    host, _, port = os.environ["PADDLE_MASTER"].rpartition(":")
    return host, int(port), int(socket.gethostname().rpartition("-")[2]), int(os.environ["PADDLE_NNODES"])


def jax() -> tuple[str, int, int, int]:
    told = os.environ
    address, port = told["COORDINATOR_ADDRESS"], int(told["COORDINATOR_PORT"])
    return address, port, int(told["PROCESS_ID"]), int(told["NUM_PROCESSES"])


WAYS = {"PyTorchJob": master, "XGBoostJob": master, "TFJob": tf_config, "PaddleJob": paddle, "JAXJob": jax}

if __name__ == "__main__":
    sys.exit(main())
