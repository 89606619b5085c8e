"""The options of single kinds: defaults, and the flags that their fields are."""

from dataclasses import dataclass
from typing import ClassVar

from controller.kind.options import KindOptions, Options, flags, option


@dataclass(frozen=True, slots=True)
class RelayOptions(KindOptions):
    prefix: ClassVar[str] = "relay"
    head_image: str = option("alpine", "the head's image", metavar="IMAGE")
    handover: bool = option(True, "whether to hand over", on_off=True)
    loaded: str = ""


def test_unset_options_have_their_defaults() -> None:
    assert Options().of(RelayOptions) == RelayOptions()
    assert Options(of_kinds=(RelayOptions("busybox"),)).of(RelayOptions).head_image == "busybox"


def test_only_fields_made_by_option_are_flags() -> None:
    assert [(flag.name, flag.default, flag.on_off) for flag in flags(RelayOptions)] == [
        ("--relay-head-image", "alpine", False),
        ("--relay-handover", True, True),
    ]


def test_options_name_no_kind() -> None:
    shared = {name for name in Options.__dataclass_fields__ if name != "of_kinds"}

    assert shared == {
        "gang_scheduler",
        "max_replicas",
        "most_missing",
        "clean_finished_pods",
        "container_restart_rules",
        "cluster_domain",
        "keeps_ledger",
        "services",
    }
