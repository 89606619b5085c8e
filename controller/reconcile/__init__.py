"""The pass: what is seen of a job becomes a plan, and the plan is carried out once."""
