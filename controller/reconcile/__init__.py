"""The reconcile: observe a job's children, plan, and execute the plan once."""
