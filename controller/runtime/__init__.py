"""Parts of any controller: informers, stores, a work queue, workers, an event recorder. Nothing here depends on jobs."""
