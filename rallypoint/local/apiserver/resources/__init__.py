"""The resources that the server serves: built-in ones and those of CustomResourceDefinitions."""
