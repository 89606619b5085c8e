"""Generated pages of ``docs/reference``. Each module makes the pages of one subject from the code that defines it."""
