"""Control group hierarchies of a machine, read from its mounts and the groups of this process."""

from pathlib import Path

from rallypoint.testing.cluster.cgroups import Hierarchy, hierarchies

SEPARATE = """\
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""


def test_separate_hierarchies_each_have_a_group_of_this_process() -> None:
    groups = "9:name=systemd:/\n4:memory:/user/a:b\n1:cpuacct,cpu:/\n0::/\n"

    found = hierarchies(SEPARATE, groups)

    assert {(str(hierarchy.mount), hierarchy.own) for hierarchy in found} == {
        ("/sys/fs/cgroup/cpu,cpuacct", "/"),
        ("/sys/fs/cgroup/memory", "/user/a:b"),
        ("/sys/fs/cgroup/systemd", "/"),
    }
    assert {frozenset(hierarchy.option.split(",")) for hierarchy in found} == {
        frozenset({"cpu", "cpuacct"}),
        frozenset({"memory"}),
        frozenset({"name=systemd"}),
    }


def test_a_single_unified_hierarchy() -> None:
    mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev 0 0\n"

    assert hierarchies(mounts, "0::/user.slice/session\n") == [
        Hierarchy(Path("/sys/fs/cgroup"), "", "/user.slice/session")
    ]


def test_a_new_group_is_a_child_of_the_group_of_this_process() -> None:
    hierarchy = Hierarchy(Path("/sys/fs/cgroup/memory"), "memory", "/user")

    assert hierarchy.folder("node-1") == Path("/sys/fs/cgroup/memory/user/node-1")
