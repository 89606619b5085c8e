"""Which hierarchies of control groups a machine has, by what the kernel says of mounts and of this process."""

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

    assert {(str(one.mount), one.own) for one in found} == {
        ("/sys/fs/cgroup/cpu,cpuacct", "/"),
        ("/sys/fs/cgroup/memory", "/user/a:b"),
        ("/sys/fs/cgroup/systemd", "/"),
    }
    assert {frozenset(one.option.split(",")) for one in found} == {
        frozenset({"cpu", "cpuacct"}),
        frozenset({"memory"}),
        frozenset({"name=systemd"}),
    }


def test_one_hierarchy_is_used_where_it_is_the_only_one() -> None:
    mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev 0 0\n"

    assert hierarchies(mounts, "0::/user.slice/session\n") == [
        Hierarchy(Path("/sys/fs/cgroup"), "", "/user.slice/session")
    ]


def test_a_group_lies_beneath_the_one_of_this_process() -> None:
    hierarchy = Hierarchy(Path("/sys/fs/cgroup/memory"), "memory", "/user")

    assert hierarchy.folder("node-1") == Path("/sys/fs/cgroup/memory/user/node-1")
