"""The command for people: local mode, ``why``, and what the tests are made with."""
