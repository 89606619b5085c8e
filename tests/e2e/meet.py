"""The rendezvous of a training program of every kind without its framework: peers from the environment, over TCP.

First each resolves every name of a pod in its environment. Then rank 0 waits for all others and tells each the sum of all ranks; everybody
prints it. Runs in pods, standard library only.
"""

import json
import os
import socket
import sys
import time

TIMEOUT_SECONDS = 90.0


def main() -> int:
    for name in names():
        resolve(name)
    host, port, rank, size = WAYS[os.environ["MEET_AS"]]()
    total = receive(port, size) if rank == 0 else send(host, port, rank)
    print(f"rank {rank} of {size}: {total}", flush=True)
    return 0 if total == size * (size - 1) // 2 else 1


def names() -> list[str]:
    """The hosts in the variables of all kinds."""
    environment = os.environ
    found = [environment.get(name, "") for name in ("MASTER_ADDR", "COORDINATOR_ADDRESS", "PADDLE_MASTER")]
    found += environment.get("WORKER_ADDRS", "").split(",")
    for addresses in json.loads(environment.get("TF_CONFIG", "{}")).get("cluster", {}).values():
        found += addresses
    return [name.partition(":")[0] for name in found if name]


def resolve(name: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            socket.getaddrinfo(name, None)
        except OSError as error:
            if time.monotonic() > deadline:
                raise
            print(f"{name}: {error}", flush=True)
            time.sleep(0.5)
        else:
            return


def receive(port: int, size: int) -> int:
    with socket.create_server(("", port)) as server:
        others = [server.accept()[0] for _ in range(size - 1)]
    total = sum(int(connection.makefile().readline()) for connection in others)
    for connection in others:
        connection.sendall(f"{total}\n".encode())
        connection.close()
    return total


def send(host: str, port: int, rank: int) -> int:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            with socket.create_connection((host, port), timeout=TIMEOUT_SECONDS) as connection:
                connection.sendall(f"{rank}\n".encode())
                return int(connection.makefile().readline())
        except OSError as error:
            if time.monotonic() > deadline:
                raise
            print(f"{host}:{port}: {error}", flush=True)
            time.sleep(0.5)


def master() -> tuple[str, int, int, int]:
    """PyTorch and XGBoost."""
    environment = os.environ
    return (
        environment["MASTER_ADDR"],
        int(environment["MASTER_PORT"]),
        int(environment["RANK"]),
        int(environment["WORLD_SIZE"]),
    )


def tf_config() -> tuple[str, int, int, int]:
    """TensorFlow: everybody's address is in one list a role; ranks are places in all of them."""
    tf_config = json.loads(os.environ["TF_CONFIG"])
    everybody = [
        (role, index)
        for role in sorted(tf_config["cluster"])
        for index in range(len(tf_config["cluster"][role]))
    ]
    role, index = everybody[0]
    host, _, port = tf_config["cluster"][role][index].rpartition(":")
    return (
        host,
        int(port),
        everybody.index((tf_config["task"]["type"], tf_config["task"]["index"])),
        len(everybody),
    )


def paddle() -> tuple[str, int, int, int]:
    """Paddle: its launcher finds the first pod by address; this program uses the pod's name."""
    host, _, port = os.environ["PADDLE_MASTER"].rpartition(":")
    return host, int(port), int(os.environ["HOSTNAME"].rpartition("-")[2]), int(os.environ["PADDLE_NNODES"])


def jax() -> tuple[str, int, int, int]:
    environment = os.environ
    address, port = environment["COORDINATOR_ADDRESS"], int(environment["COORDINATOR_PORT"])
    return address, port, int(environment["PROCESS_ID"]), int(environment["NUM_PROCESSES"])


WAYS = {"PyTorchJob": master, "XGBoostJob": master, "TFJob": tf_config, "PaddleJob": paddle, "JAXJob": jax}

if __name__ == "__main__":
    sys.exit(main())
