"""Shadow mode: the operator watches and decides beside another one, writes nothing, and reports where its decisions differ.

    comparable   the form in which two objects are compared, and their differences
    declared     the differences that are on purpose, each with the page that says why
    desired      the children that planning would create for a job
    compare      one job: its children, its status and its plan against what the other operator did. Pure
    verdicts     what this operator would have done about a failed pod or a finished job, at that moment. Pure
    controller   when to compare a job, and what to read for it
    report       the results of all jobs, as metrics and as JSON

Only ``app`` imports this package, and only with ``--shadow``.
"""
