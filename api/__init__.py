"""What users write and read: the job kinds of the API group kubeflow.org, as data and pure functions over data."""
