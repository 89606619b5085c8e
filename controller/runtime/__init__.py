"""The machinery of any controller: informers, stores, a queue, workers, events. It has never heard of jobs."""
