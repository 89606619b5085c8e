"""A real cluster on one Linux machine, as root: control plane, nodes with kubelet and containerd, DNS, images made here.

    from rallypoint.testing.cluster.cluster import Cluster

    with Cluster() as cluster:
        subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "get", "nodes"])

A node is a group of processes in namespaces of its own, on the machine's file system; killing the first of them is a power cut.
``python -m rallypoint.testing.cluster`` starts and ends one from the shell. Nothing here knows of jobs.
Nothing is imported here: the first process of a node is a module of this package, and stays small.
"""
