"""The job kinds of kubeflow.org/v1, one module each."""
