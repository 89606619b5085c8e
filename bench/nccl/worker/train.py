"""Training of a fixed model with DistributedDataParallel on generated images."""

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench.nccl.worker.group import Group
from bench.nccl.worker.messages import emit

MODELS = {"resnet50": ((3, 4, 6, 3), 64, 224), "small": ((1, 1, 1, 1), 16, 32)}
"""Model → number of bottlenecks per stage, width of the first stage, image size in pixels."""
CLASSES = 1000


def run(task: Mapping[str, Any], group: Group) -> None:
    """Report images per second of all ranks, a value per round."""
    stages, width, pixels = MODELS[task["model"]]
    torch.manual_seed(0)
    on_gpu = group.device.type == "cuda"
    model = DistributedDataParallel(
        network(stages, width).to(group.device), device_ids=[group.device] if on_gpu else None
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(task["batch"], 3, pixels, pixels, device=group.device)
    labels = torch.randint(CLASSES, (task["batch"],), device=group.device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(group.device.type, torch.bfloat16, enabled=on_gpu):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    _seconds(group, step, task["warmup"])
    images_per_round = task["batch"] * task["iterations"] * group.rank_info.ranks
    rates = [images_per_round / _seconds(group, step, task["iterations"]) for _ in range(task["rounds"])]
    if group.rank_info.rank == 0:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        emit("trained", images_per_second=[round(rate, 3) for rate in rates], parameters=parameters)


def network(stages: tuple[int, ...], width: int) -> Any:
    """Return a residual network; (3, 4, 6, 3) with width 64 is ResNet-50."""
    layers: list[Any] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inside = width
    for number, depth in enumerate(stages):
        middle = width << number
        for index in range(depth):
            stride = 2 if number and not index else 1
            layers.append(Bottleneck(inside, middle, stride))
            inside = middle * 4
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, CLASSES))


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Three convolutions with a shortcut."""

    def __init__(self, inside: int, middle: int, stride: int) -> None:
        super().__init__()
        outside = middle * 4
        self.body = nn.Sequential(
            *_convolution(inside, middle, 1, 1),
            nn.ReLU(),
            *_convolution(middle, middle, 3, stride),
            nn.ReLU(),
            *_convolution(middle, outside, 1, 1),
        )
        same = inside == outside and stride == 1
        self.carry = nn.Identity() if same else nn.Sequential(*_convolution(inside, outside, 1, stride))

    def forward(self, images: Any) -> Any:
        return nn.functional.relu(self.body(images) + self.carry(images))


def _convolution(inside: int, outside: int, side: int, stride: int) -> tuple[Any, Any]:
    return nn.Conv2d(inside, outside, side, stride, side // 2, bias=False), nn.BatchNorm2d(outside)


def _seconds(group: Group, step: Any, times: int) -> float:
    """Return the time until all ranks have done the steps."""
    group.barrier()
    begin = time.perf_counter()
    for _ in range(times):
        step()
    group.barrier()
    return time.perf_counter() - begin
