"""Our own integration with Kueue, with ``--kueue``: it does for each job what Kueue's built-in integrations do for their kinds.

A job with a queue label is held until Kueue has admitted its Workload. ``pod_sets`` (what a Workload says about a job, and what an
admission adds to the job) and ``plan`` (the next step) are pure; ``controller`` reads and writes; ``builtin`` finds out whether Kueue's
own integration manages a kind.

Source: kueue 0.19, pkg/controller/jobframework and pkg/controller/jobs/kubeflow. See docs/decisions/0039-kueue.md.
"""
